"""Turn pydantic's validation errors into diagnostics: at the right place, in the words of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

from pydantic import BaseModel, ValidationError

from graphspec.check.schema_paths import Trace, trace
from graphspec.diagnostics import Diagnostic, Span, sort_diagnostics
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.builder import Path
from graphspec.read.scalars import OutOfRangeError, resolve
from graphspec.read.source import Document
from graphspec.suggestions import closest
from graphspec.words import describe, enumerate_words, quote, spell_path

_TYPES: tuple[tuple[str, str], ...] = (
    ("float_", "a number"),
    ("decimal_", "a number"),
    ("int_", "a whole number"),
    ("bool_", "true or false"),
    ("string_type", "a string"),
    ("string_sub_type", "a string"),
    ("list_", "a list"),
    ("tuple_", "a list"),
    ("set_", "a list"),
    ("frozen_set_", "a list"),
    ("iterable_type", "a list"),
    ("dict_", "a mapping"),
    ("mapping_", "a mapping"),
    ("model_", "a mapping"),
    ("dataclass_", "a mapping"),
    ("none_required", "null"),
)
_CONSTRAINTS: Mapping[str, str] = {
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "too_short": "{min_length} or more items",
    "too_long": "{max_length} or fewer items",
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string like {pattern}",
    "union_tag_invalid": "one of the kinds {expected_tags}",
}
_CHOICE = re.compile(r"'((?:[^'\\]|\\.)*)'|[^\s',]+")
_LONGEST = 40
_FORMS: Mapping[str, str] = {
    "a number": "a number is written as in `0.5`, `3` or `1e-3`",
    "a whole number": "a whole number is written as in `100`",
    "true or false": "write true or false",
    "a string": "write one name or text",
    "a list": "a list is written `[a, b]`, or with `- ` before each item",
    "a mapping": "a mapping is written `{key: value}`, or with one `key: value` to a line",
}
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "a number": (int, float),
    "a whole number": (int,),
    "true or false": (bool,),
    "a string": (str,),
    "a mapping": (dict,),
}
_OLD_BOOLEANS = ("yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What pydantic reports about one error."""

    kind: str
    location: Path
    message: str
    found: object
    context: Mapping[str, object]

    @classmethod
    def read(cls, detail: Mapping[str, object]) -> Detail:
        """Return the detail in one of pydantic's dictionaries."""
        context = cast("Mapping[str, object]", detail.get("ctx", {}))
        location = cast("Path", detail["loc"])
        read = cls(
            kind=str(detail["type"]),
            location=location,
            message=str(detail["msg"]),
            found=detail.get("input"),
            context=context,
        )
        discriminator = str(context.get("discriminator", ""))
        return read._about_field(discriminator.strip("'")) if discriminator.startswith("'") else read

    def _about_field(self, field: str) -> Detail:
        """Return an error about the tag of a union as what it is: a wrong choice, or a missing key."""
        location = (*self.location, field)
        if self.kind == "union_tag_not_found":
            return replace(self, kind="missing", location=location)
        context = {"expected": self.context["expected_tags"]}
        return replace(self, kind="literal_error", location=location, found=self.context["tag"], context=context)

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed values of an error about one of several, as they are written."""
        if self.kind not in ("literal_error", "enum"):
            return ()
        return tuple(
            found.group() for found in _CHOICE.finditer(str(self.context["expected"])) if found.group() != "or"
        )

    @property
    def expected_type(self) -> str | None:
        """Return the type that was expected, or None where the type is not what is wrong."""
        if self.kind == "string_type" or not self.kind.startswith("string_"):
            return next((words for start, words in _TYPES if self.kind.startswith(start)), None)
        return None


def explain_constraint(detail: Detail) -> str | None:
    """Return the constraint that a value of the right type breaks, and the value; None for other errors."""
    template = _CONSTRAINTS.get(detail.kind)
    if template is None:
        return None
    numbers = {key: f"{item:.15g}" for key, item in detail.context.items() if isinstance(item, float)}
    return template.format_map({**detail.context, **numbers})


def find_remedy(expected: str, found: object) -> str:
    """Return what to write instead, where a value of the wrong type is a common mistake."""
    if found is None:
        return "leave the key out, or give it a value"
    if expected == "a string" and isinstance(found, bool | int | float):
        return "put it between quotes"
    if expected == "a list" and isinstance(found, bool | int | float | str):
        return f"write a list: `[{found}]`" if len(str(found)) <= _LONGEST else "write a list"
    if expected == "a list" and isinstance(found, dict):
        return "put brackets around it, to make it a list of one"
    if isinstance(found, list):
        only = cast("list[object]", found)[0] if len(cast("list[object]", found)) == 1 else None
        return "write it without the brackets" if isinstance(only, _PLAIN.get(expected, ())) else ""
    if not isinstance(found, str):
        return ""
    if expected == "true or false" and found.lower() in _OLD_BOOLEANS:
        return "yes, no, on and off are strings in YAML 1.2: write true or false"
    if expected.endswith("number"):
        return _find_number_remedy(found)
    return "remove the quotes" if expected == "true or false" and found.lower() in ("true", "false") else ""


def show_form(expected: str) -> str:
    """Return how a value of a type is written."""
    return _FORMS.get(expected, "")


def _find_number_remedy(found: str) -> str:
    plain = found.strip().replace("_", "").replace(",", "")
    try:
        is_number = isinstance(resolve(plain), int | float) and plain.lower() not in ("true", "false")
    except OutOfRangeError:
        return ""
    if not is_number:
        return ""
    return "remove the quotes" if plain == found.strip() else f"write {plain}"


_CODE = re.compile(r"GS[0-9]{3}|[EW](?:-[A-Z]+)+")
_NOT_BUILT = "not_built"
_OF_KEYS = ("extra_forbidden", "missing")
_LENGTHS = ("too_short", "too_long")
_MOST_WORDS = 24
_FAR = 2
_MOST_READ = 4 * MOST_PROBLEMS


def explain_validation(error: ValidationError, document: Document, root: type[BaseModel]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for every problem that validating a document as ``root`` found, sorted by place.

    An error that a validator raises as PydanticCustomError with a diagnostic's code for its type keeps code and
    message; its context may have ``help``, ``label`` and ``at``, "key" or "value".
    """
    # Read more errors than are reported, since the branches of a union make one problem.
    found = islice(error.errors(include_url=False), _MOST_READ)
    details = (Detail.read({**detail}) for detail in found)
    problems = _drop_misspelt(_drop_lengths([_find_problem(detail, document, root) for detail in details]))
    groups = _choose_branches(problems, 0)
    return sort_diagnostics(dict.fromkeys(_explain(group, document) for group in groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """One error and where its location leads; for errors about a key, that is the mapping it is or should be in."""

    detail: Detail
    trace: Trace

    @property
    def is_mismatch(self) -> bool:
        """Return whether nothing but the type of the value, or its choice among several, is wrong."""
        return self.detail.expected_type is not None or bool(self.detail.choices)


def _find_problem(detail: Detail, document: Document, root: type[BaseModel]) -> _Problem:
    location = detail.location[:-1] if detail.kind in _OF_KEYS else detail.location
    return _Problem(detail=detail, trace=trace(location, root, document.data))


def _drop_lengths(problems: Sequence[_Problem]) -> list[_Problem]:
    """Drop lists that are too short only because pydantic does not count their invalid items."""
    locations = {problem.detail.location for problem in problems}
    inner = {location[:length] for location in locations for length in range(len(location))}
    return [item for item in problems if item.detail.kind not in _LENGTHS or item.detail.location not in inner]


def _drop_misspelt(problems: Sequence[_Problem]) -> list[_Problem]:
    """Drop missing keys that are there but misspelt: the unknown key is reported anyway."""
    meant = {
        (*problem.detail.location[:-1], near)
        for problem in problems
        if problem.detail.kind == "extra_forbidden"
        for near in closest(str(problem.detail.location[-1]), _find_keys(problem.trace.models), 1)
    }
    return [item for item in problems if item.detail.kind != "missing" or item.detail.location not in meant]


def _choose_branches(problems: Iterable[_Problem], level: int) -> list[Sequence[_Problem]]:
    """Group problems into diagnostics: all branches of a union failed, but the user meant one of them."""
    unions: dict[Path, dict[str, list[_Problem]]] = {}
    groups: list[Sequence[_Problem]] = []
    for problem in problems:
        if level < len(problem.trace.branches):
            path, label = problem.trace.branches[level]
            unions.setdefault(path, {}).setdefault(label, []).append(problem)
        else:
            groups.append([problem])
    for path, branches in unions.items():
        groups.extend(_choose_branch(path, list(branches.values()), level))
    return groups


def _choose_branch(path: Path, branches: Sequence[list[_Problem]], level: int) -> list[Sequence[_Problem]]:
    """Return the groups of the branch that fits best; one group for all where none fits at all."""
    best = min(branches, key=lambda branch: (_distance(path, branch), len(branch)))
    if len(branches) > 1 and _distance(path, best) == _FAR:
        return [[problem for branch in branches for problem in branch]]
    return _choose_branches(best, level + 1)


def _distance(path: Path, branch: Iterable[_Problem]) -> int:
    """Return 0 where a branch of a union at a path took the value and failed inside, 1 where it took its type."""
    problems = tuple(branch)
    if any(item.detail.kind in _OF_KEYS or len(item.trace.path) > len(path) for item in problems):
        return 0
    return _FAR if all(item.is_mismatch for item in problems) else 1


def _explain(group: Sequence[_Problem], document: Document) -> Diagnostic:
    problem = group[0]
    kind = problem.detail.kind
    if len(group) > 1 or problem.is_mismatch:
        return _explain_mismatch(group, document)
    if _CODE.fullmatch(kind) or kind == _NOT_BUILT:
        return _explain_custom(problem, document)
    if kind == "extra_forbidden":
        return _explain_unknown_key(problem, document)
    if kind == "missing":
        return _explain_missing_key(problem, document)
    return _explain_value(problem, document)


def _explain_custom(problem: _Problem, document: Document) -> Diagnostic:
    """Return the diagnostic that a validator of ours made."""
    detail, path = problem.detail, problem.trace.path
    is_key = detail.context.get("at") == "key"
    return Diagnostic(
        code="GS045" if detail.kind == _NOT_BUILT else detail.kind,
        message=detail.message,
        span=document.key_span(path) if is_key else _find_span(document, path),
        label=str(detail.context.get("label", "")),
        help=str(detail.context.get("help", "")),
    )


def _explain_unknown_key(problem: _Problem, document: Document) -> Diagnostic:
    key, path = str(problem.detail.location[-1]), problem.trace.path
    fields = _find_keys(problem.trace.models)
    near = closest(key, fields, 1)
    known = [name for name, is_usable in fields.items() if is_usable]
    return Diagnostic(
        code="GS040",
        message=f"unknown key {quote(key)} in {_where(path)}",
        span=document.key_span((*path, key)),
        label=f"did you mean '{near[0]}'?" if near else "",
        help=f"its keys are {', '.join(known)}" if 0 < len(known) <= _MOST_WORDS else "remove it",
    )


def _find_keys(models: Iterable[type[BaseModel]]) -> Mapping[str, bool]:
    """Return the keys that classes take, each with whether any value is allowed there: a field of None has none."""
    fields = (pair for model in models for pair in model.model_fields.items())
    return {field.alias or name: field.annotation is not type(None) for name, field in fields}


def _explain_missing_key(problem: _Problem, document: Document) -> Diagnostic:
    key, path = str(problem.detail.location[-1]), problem.trace.path
    span = document.key_span(path)
    return Diagnostic(
        code="GS042",
        message=f"missing key {key!r} in {_where(path)}",
        span=span if path else _start_of(span),
        label=f"needs '{key}'",
        help=f"add `{key}: ...`",
    )


def _explain_mismatch(group: Sequence[_Problem], document: Document) -> Diagnostic:
    """Report what was expected and found; the problems of a group are the branches of a union that all failed."""
    details = [problem.detail for problem in group]
    path, found = group[0].trace.path, details[0].found
    choices = tuple(dict.fromkeys(choice for detail in details for choice in detail.choices))
    types = tuple(dict.fromkeys(words for detail in details if (words := detail.expected_type) is not None))
    if choices and (isinstance(found, str) or not types):
        return _explain_choice(path, found, choices, types, document)
    remedies = (*(find_remedy(words, found) for words in types), *map(show_form, types))
    return Diagnostic(
        code="GS041",
        message=f"expected {enumerate_words((*types, *choices))} as {_where(path)}, found {describe(found)}",
        span=_find_span(document, path),
        help=next((remedy for remedy in remedies if remedy), ""),
    )


def _explain_choice(
    path: Path, found: object, choices: tuple[str, ...], types: tuple[str, ...], document: Document
) -> Diagnostic:
    near = closest(found, [choice.strip("'") for choice in choices], 1) if isinstance(found, str) else ()
    return Diagnostic(
        code="GS043",
        message=f"{describe(found)} is not allowed as {_where(path)}",
        span=_find_span(document, path),
        label=f"did you mean '{near[0]}'?" if near else "",
        help=f"write {enumerate_words((*choices, *types))}",
    )


def _explain_value(problem: _Problem, document: Document) -> Diagnostic:
    """Report what else is wrong with a value: a constraint that it breaks, or what a validator raised."""
    detail, path = problem.detail, problem.trace.path
    wanted = explain_constraint(detail)
    raised = detail.context.get("error")
    if wanted is not None:
        found = detail.context.get("actual_length", describe(detail.found))
        message = f"expected {wanted} as {_where(path)}, found {found}"
    elif isinstance(raised, Exception):
        message = str(raised) or f"this value is not allowed as {_where(path)}"
    else:
        message = f"{_where(path)}: {detail.message}"
    span = document.key_span(path) if detail.location[-1:] == ("[key]",) else _find_span(document, path)
    return Diagnostic(code="GS044", message=message, span=span)


def _where(path: Path) -> str:
    return f"`{spell_path(path)}`" if path else spell_path(path)


def _find_span(document: Document, path: Path) -> Span:
    """Return where a value stands; of one over several lines, where its key does."""
    span = document.value_span(path)
    return span if span.line == span.end_line or not path else document.key_span(path)


def _start_of(span: Span) -> Span:
    return Span(file=span.file, line=span.line, column=span.column, end_line=span.line, end_column=span.column)
