"""Interpolation: ``${name}`` in a value becomes the variable of that name, with its type where it stands alone.

In variables themselves ``${= 0.7 * temperature**2}`` becomes the value of an expression of others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.limits import MOST_PROBLEMS, Limits
from graphspec.read.arithmetic import FUNCTIONS, SIGNATURES, evaluate
from graphspec.read.builder import Path, Plain, SourceText
from graphspec.read.expressions import (
    CONSTANTS,
    NUMBERS,
    Expression,
    ExpressionError,
    Scalar,
    find_names,
    read_expression,
)
from graphspec.read.source import Document
from graphspec.words import describe, did_you_mean, quote

_MARK = "${"
_TOKEN = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = "$${"
_EXPRESSION = "="
"""What an interpolation begins with that is an expression."""
_DEFAULT_LIMITS = Limits()
_SHOWN = 3
"""How many uses of a wrong variable are named."""


def interpolate(document: Document, *, limits: Limits = _DEFAULT_LIMITS) -> Document:
    """Return a document with every ``${name}`` in a value replaced; ``$${`` escapes ``${``.

    ``"${latent}"`` alone takes the variable's type, ``"a-${latent}"`` is a text. Variables may use each other, also in
    expressions. Keys stay unchanged. Raises SpecError for unknown names, cycles, expressions without a value, and
    results over the limits.
    """
    if not isinstance(document.data, dict):
        return document
    variables = document.data.get("vars")
    variables = {} if variables is None else variables
    if not isinstance(variables, dict):
        span, help = document.value_span(("vars",)), "write `vars: {latent: 32}`"
        message = "expected a mapping of names to constants as `vars`"
        raise SpecError([Diagnostic(code="GS034", message=message, span=span, help=help)], document.texts)
    uses = tuple(_find_uses(document.data, ()))
    if not uses:
        return document
    problems = _check_uses(document, variables, uses)
    needs: dict[str, list[str]] = {name: [] for name in variables}
    for use in uses:
        if len(use.path) > 1 and use.path[0] == "vars":
            needs[str(use.path[1])].extend(name for name in use.names if name in variables)
    order: tuple[str, ...] = ()
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        # The cycle is reported at the variable that is listed first, and begins with it.
        *members, _ = [str(name) for name in reversed(error.args[1])]
        spans = {name: document.key_span(("vars", name)) for name in members}
        first = min(members, key=lambda name: (spans[name].file, spans[name].line, spans[name].column))
        at = members.index(first)
        message = f"variables need each other: {' -> '.join([*members[at:], *members[:at], first])}"
        help = "give one of them a value of its own"
        problems.append(Diagnostic(code="GS031", message=message, span=spans[first], help=help))
    if problems:
        raise SpecError(problems, document.texts)
    return replace(document, data=_Substitution(document, limits).run(variables, order))


_ALONE = re.compile(rf"""(["']?)\$\{{({_NAME.pattern})\}}\1""")


def join_uses(problems: Iterable[Diagnostic], document: Document) -> tuple[Diagnostic, ...]:
    """Return problems with one at a variable in place of those with its code at several of its uses.

    A use is a value that is the variable alone, as in ``lr: "${lr}"``.
    """
    locator = _Locator(document)
    kept: list[Diagnostic] = []
    uses: dict[tuple[str, str], list[Diagnostic]] = {}
    for each in problems:
        # In a block the name may be that of an argument; the text of Python code may not be there.
        is_known = each.span is not None and not each.span.via and bool(document.texts.get(each.span.file))
        found = _ALONE.fullmatch(locator.read(each.span)) if each.span is not None and is_known else None
        if found is None or ("vars", found[2]) not in document.places:
            kept.append(each)
        else:
            uses.setdefault((each.code, found[2]), []).append(each)
    for (_, name), found in uses.items():
        places = list(dict.fromkeys(each.span.place for each in found if each.span is not None))
        if len(places) == 1:
            kept.extend(found)
            continue
        shown = ", ".join(places[:_SHOWN]) + (f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else "")
        notes = (*found[0].notes, f"`${{{name}}}` is used at {len(places)} places where it does not fit: {shown}")
        kept.append(replace(found[0], span=document.value_span(("vars", name)), notes=notes))
    return tuple(kept)


class _Use(Struct, frozen=True, kw_only=True):
    """A text at a path that has ``${`` in it."""

    path: Path
    text: str

    @property
    def tokens(self) -> Iterator[tuple[str, str | None]]:
        """Yield (text, name) of every interpolation; an unclosed one extends to the end and has no name."""
        for found in _TOKEN.finditer(self.text):
            if found["name"] is not None:
                yield found.group(), found["name"]
            elif found.group() != _ESCAPED:
                yield self.text[found.start() :], None

    @property
    def names(self) -> Iterator[str]:
        """Yield the names that its interpolations use, those of expressions that can be read included."""
        for _, name in self.tokens:
            if name is not None and name.startswith(_EXPRESSION):
                try:
                    yield from (each.name for each in find_names(_read(name)))
                except ExpressionError:
                    continue
            elif name is not None:
                yield name


def _read(name: str) -> Expression:
    """Return the expression of an interpolation, whose characters are those after ``${``."""
    return read_expression(" " + name.removeprefix(_EXPRESSION), NUMBERS, SIGNATURES)


def _find_uses(value: Plain, path: Path) -> Iterator[_Use]:
    match value:
        case str():
            if _MARK in value:
                yield _Use(path=path, text=value)
        case dict():
            for key, item in value.items():
                yield from _find_uses(item, (*path, key))
        case list():
            for index, item in enumerate(value):
                yield from _find_uses(item, (*path, index))
        case _:
            pass


def _check_uses(document: Document, variables: Mapping[str, Plain], uses: tuple[_Use, ...]) -> list[Diagnostic]:
    """Return what is wrong with uses of variables, up to the number of problems that are reported."""
    locator = _Locator(document)
    found: list[Diagnostic] = []
    for use in uses:
        for written, name in dict.fromkeys(use.tokens):
            if name in variables or len(found) >= MOST_PROBLEMS:
                continue
            if name is not None and name.startswith(_EXPRESSION) and use.path[0] == "vars":
                found.extend(_check_expression(use, written, name, variables, locator))
                continue
            code, message, label = "GS032", f"expected the name of a variable, found {quote(written)}", ""
            help = "only `${name}` with a key of `vars` is replaced: no functions or environment"
            if name is None:
                message = "`${` is not closed"
                help = "write `${name}` with the name of a variable, or `$${` for the characters themselves"
                if written.startswith(f"{_MARK}{_EXPRESSION}"):
                    help = "within `${= ...}` a variable is its name alone"
            elif _NAME.fullmatch(name):
                code, message, label = "GS030", f"there is no variable {quote(name)}", did_you_mean(name, variables)
                known = 0 < len(variables) <= 20
                help = f"variables are {', '.join(variables)}" if known else f"declare it: `vars: {{{name}: ...}}`"
            else:
                last = name.strip().rpartition(".")[2]
                label = f"did you mean '${{{last}}}'?" if last in variables else ""
                if use.path[0] == "vars" and _calculates(name, variables):
                    help = f"write an expression: `${{= {name.strip()}}}`"
                elif name.startswith(_EXPRESSION) or _calculates(name, variables):
                    help = "expressions are for `vars`: declare one there, and write its name here"
            span = locator.find(use.path, written, last=name is None)
            found.append(Diagnostic(code=code, message=message, span=span, label=label, help=help))
    return found


def _calculates(text: str, variables: Mapping[str, Plain]) -> bool:
    """Return whether a text is an expression that uses variables."""
    try:
        names = [each.name for each in find_names(read_expression(text, NUMBERS))]
    except ExpressionError:
        return False
    return bool(names) and all(each in variables for each in names)


def _check_expression(
    use: _Use, written: str, name: str, variables: Mapping[str, Plain], locator: _Locator
) -> Iterator[Diagnostic]:
    """Yield what is wrong with an expression of variables, but for their values."""
    try:
        names = [*find_names(_read(name))]
    except ExpressionError as error:
        yield locator.explain(use.path, written, error)
        return
    for each in names:
        if each.name not in variables:
            span = locator.find_inside(use.path, written, each.start, each.end)
            is_function = each.name in FUNCTIONS
            help = f"write `{each.name}(...)`" if is_function else f"declare it: `vars: {{{each.name}: ...}}`"
            label = did_you_mean(each.name, (*variables, *CONSTANTS))
            message = f"there is no variable {quote(each.name)}"
            yield Diagnostic(code="GS030", message=message, span=span, label=label, help=help)


class _Locator:
    """Find the exact characters of an interpolation in the text of its value."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._texts: dict[str, SourceText] = {}

    def read(self, span: Span) -> str:
        """Return what is written at a place."""
        text, start, end = self._find_offsets(span)
        return text.content[start:end]

    def _find_offsets(self, span: Span) -> tuple[SourceText, int, int]:
        if span.file not in self._texts:
            self._texts[span.file] = SourceText(file=span.file, content=self._document.texts[span.file])
        text = self._texts[span.file]
        return text, text.offset(span.line, span.column), text.offset(span.end_line, span.end_column)

    def find(self, path: Path, part: str, *, last: bool = False) -> Span:
        """Return where a part of a value is first (or last) written; the whole value where it is spelled otherwise."""
        span = self._document.value_span(path)
        text, start, end = self._find_offsets(span)
        at = text.content.rfind(part, start, end) if last else text.content.find(part, start, end)
        return span if at < 0 else text.span(at, at + len(part))

    def find_inside(self, path: Path, written: str, start: int, end: int) -> Span:
        """Return where some characters of an interpolation are written, counted from after its ``${``."""
        whole = self.find(path, written)
        text = self._texts[whole.file]
        at, end_at = text.offset(whole.line, whole.column), text.offset(whole.end_line, whole.end_column)
        is_spelled_so = text.content[at:end_at] == written
        return text.span(at + len(_MARK) + start, at + len(_MARK) + end) if is_spelled_so else whole

    def explain(self, path: Path, written: str, error: ExpressionError) -> Diagnostic:
        """Return the problem of an expression."""
        span = self.find_inside(path, written, error.start, error.end)
        return Diagnostic(code="GS039", message=error.message, span=span, help=error.help)


def spell(value: Scalar | str | None) -> str:
    """Return a constant as YAML spells it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        case _:
            return str(value)


class _Substitution:
    """Replace interpolations and limit the size of the result: variables of variables grow fast."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self._document = document
        self._limits = limits
        self._values: dict[str, Plain] = {}
        self._nodes = 0
        self._characters = 0
        self._diagnostics: list[Diagnostic] = []

    def run(self, variables: Mapping[str, Plain], order: tuple[str, ...]) -> Plain:
        """Return the document's data with all variables replaced, which are resolved in the order given."""
        for name in order:
            self._values[name] = self._replace(variables[name], ("vars", name))
        data = self._replace(self._document.data, ())
        if self._diagnostics:
            # The values of variables are visited twice: on their own, and in their place below `vars`.
            raise SpecError(dict.fromkeys(self._diagnostics), self._document.texts)
        return data

    def _replace(self, value: Plain, path: Path) -> Plain:
        match value:
            case str() if _MARK in value:
                whole = _TOKEN.fullmatch(value)
                if whole is not None and whole["name"] is not None:
                    return self._copy(self._find_value(whole["name"], path), path, len(path))
                return _TOKEN.sub(lambda found: self._spell(found["name"], path), value)
            case dict():
                return {key: self._replace(item, (*path, key)) for key, item in value.items()}
            case list():
                return [self._replace(item, (*path, index)) for index, item in enumerate(value)]
            case _:
                return value

    def _find_value(self, name: str, path: Path) -> Plain:
        """Return the value of a variable, or of an expression of several."""
        if not name.startswith(_EXPRESSION):
            return self._values[name]
        written, expression, numbers = f"${{{name}}}", _read(name), dict[str, Scalar]()
        locator = _Locator(self._document)
        for each in find_names(expression):
            value = self._values[each.name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                message = f"variable {quote(each.name)} is {describe(value)}, and not a number"
                error = ExpressionError(message, each.start, each.end, "calculate with numbers")
                self._report(locator.explain(path, written, error))
                return 0
            numbers[each.name] = value
        try:
            return evaluate(expression, numbers)
        except ExpressionError as error:
            self._report(locator.explain(path, written, error))
            return 0

    def _report(self, problem: Diagnostic) -> None:
        """Collect a problem; raise SpecError with all where there are as many as are reported."""
        self._diagnostics.append(problem)
        if len(self._diagnostics) == MOST_PROBLEMS:
            raise SpecError(dict.fromkeys(self._diagnostics), self._document.texts)

    def _copy(self, value: Plain, path: Path, depth: int) -> Plain:
        """Return a value of its own for every use, so that what is counted is what the document becomes."""
        self._count(path, nodes=1, characters=len(value) if isinstance(value, str) else 0)
        if isinstance(value, dict | list) and depth >= self._limits.depth:
            self._fail(path, f"variables nest collections more than {self._limits.depth} deep")
        match value:
            case dict():
                return {key: self._copy(item, path, depth + 1) for key, item in value.items()}
            case list():
                return [self._copy(item, path, depth + 1) for item in value]
            case _:
                return value

    def _spell(self, name: str | None, path: Path) -> str:
        """Return the replacement of an interpolation inside a text: a scalar as YAML spells it; `${` without a name."""
        if name is None:
            return _MARK
        value = self._find_value(name, path)
        if isinstance(value, dict | list):
            written, kind = f"${{{name}}}", "a mapping" if isinstance(value, dict) else "a list"
            message = f"variable {name!r} is {kind} and cannot be a part of a text"
            span = _Locator(self._document).find(path, written)
            help = f"let `{written}` stand alone, or use a variable with a single value"
            self._report(Diagnostic(code="GS033", message=message, span=span, help=help))
            return ""
        text = spell(value)
        self._count(path, nodes=0, characters=len(text))
        return text

    def _count(self, path: Path, *, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > self._limits.nodes:
            self._fail(path, f"with its variables the document has more than {self._limits.nodes:,} values")
        if self._characters > self._limits.bytes:
            self._fail(path, f"with its variables the document is larger than {self._limits.bytes:,} bytes")

    def _fail(self, path: Path, message: str) -> NoReturn:
        span, help = self._document.value_span(path), "write fewer variables that repeat others"
        raise SpecError([Diagnostic(code="GS035", message=message, span=span, help=help)], self._document.texts)
