"""The names of a spec as it is written: where each is declared, and where it is mentioned.

Every op says itself which of its words are names of something else. This module finds where these words stand in the
text, before blocks are copied and expressions become ops.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from graphspec.analysis.scope import Facet, find_facets
from graphspec.declare.blocks import UseOp
from graphspec.declare.data import MIX
from graphspec.declare.formulas import DIFFERENTIATED, FormulaOp
from graphspec.declare.graph import find_kinds
from graphspec.declare.ops.base import OpBase
from graphspec.diagnostics import Span
from graphspec.expand.formulas import find_held, is_formula, place_characters
from graphspec.expand.parsed import parse_op
from graphspec.read.builder import SourceText
from graphspec.read.expressions import VALUES, ExpressionError, read_expression
from graphspec.read.expressions import find_names as find_operands
from graphspec.read.source import Document, Path, Plain

Space: TypeAlias = Literal["name", "variable", "block", "data"]
TRAIN = "train"
INTERPOLATION = re.compile(r"\$\$\{|\$\{(?P<name>[^{}]*)\}")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SECTIONS: tuple[tuple[str, Space, tuple[Facet, ...]], ...] = (
    ("vars", "variable", ()),
    ("inputs", "name", ("input",)),
    ("state", "name", ("state",)),
    ("models", "name", ("model",)),
    ("blocks", "block", ()),
    ("data", "data", ()),
)
_SHARED = frozenset[Facet]({"model", "state", "average", "derived"})
"""What the ops of a block may name of the document."""


class Symbol(NamedTuple):
    """Something that has a name: in which namespace, and inside which block, or of the document."""

    space: Space
    name: str
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A declaration: what the name can be, its path, where the name stands, and where all of it does."""

    symbol: Symbol
    facets: tuple[Facet, ...]
    path: Path
    span: Span
    whole: Span
    op: OpBase | None = None
    """The op that it names, or that makes the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A place where a name is written, its declaration included."""

    symbol: Symbol
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Every name of a document, and every place where it is written."""

    declared: Mapping[Symbol, Declared]
    mentions: tuple[Mention, ...] = ()
    hidden: frozenset[Symbol] = frozenset()
    """What is mentioned where its name is not spelled out, as through a variable."""
    uses: Mapping[Symbol, str] = field(default_factory=dict[Symbol, str])
    """By op: the block that it uses."""
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By block, or by the scope of what an op holds: the values that others may read."""
    around: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the scope of what an op holds: the scope of that op, whose names are seen inside, too."""

    def at(self, file: str, line: int, column: int) -> Mention | None:
        """Return the mention at a place, the end of its word included."""
        for each in self.mentions:
            span = each.span
            if span.file == file and span.line == line and span.column <= column <= span.end_column:
                return each
        return None

    def of(self, symbol: Symbol) -> tuple[Mention, ...]:
        """Return every mention of a symbol, in the order of the text."""
        found = {each.span: each for each in self.mentions if each.symbol == symbol}
        return tuple(sorted(found.values(), key=lambda each: (each.span.file, each.span.line, each.span.column)))

    def offer(self, facets: Collection[Facet], scope: str) -> Iterator[tuple[str, Declared]]:
        """Yield every name that an op of the document, or of a block, may mention as one of some facets."""
        seen = [scope]
        while seen[-1] in self.around:
            seen.append(self.around[seen[-1]])
        for symbol, each in self.declared.items():
            inside = symbol.scope in seen or (not symbol.scope and not _SHARED.isdisjoint(each.facets))
            if symbol.space != "name" or not inside:
                continue
            if not set(facets).isdisjoint(each.facets):
                yield symbol.name, each
            if "value" in facets:
                values = self.outputs.get(self.uses.get(symbol, ""), ())
                loss = each.op is not None and "op" in each.facets and _find_formula(each.op) in ("loss", "gradient")
                yield from ((f"{symbol.name}.{value}", each) for value in (*values, *(("loss",) if loss else ())))


NOTHING = Names(declared={})


def hold_scope(scope: str, op: str) -> str:
    """Return the scope of the names that an op holds, which no block has for a name."""
    return f"{scope}/{op}"


def look(value: Plain, path: Path) -> Plain:
    """Return what stands at a path of some data; None where nothing does."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def find_names(document: Document) -> Names:
    """Return the names of a document."""
    return _Collector(document).run() if isinstance(document.data, dict) else NOTHING


def _find_formula(op: OpBase) -> str | None:
    """Return the field of an op that is an expression."""
    if isinstance(op, FormulaOp):
        return "expr"
    key = DIFFERENTIATED.get(op.kind)
    return key if key is not None and is_formula(getattr(op, key)) else None


class _Collector:
    """Collects the names of a document: first the declarations, then what mentions them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._texts = {file: SourceText(file=file, content=text) for file, text in document.texts.items()}
        self._declared: dict[Symbol, Declared] = {}
        self._mentions: list[Mention] = []
        self._hidden: set[Symbol] = set()
        self._uses: dict[Symbol, str] = {}
        self._outputs: dict[str, tuple[str, ...]] = {}
        self._around: dict[str, str] = {}

    def run(self) -> Names:
        """Return what is found."""
        for section, space, facets in _SECTIONS:
            for name in self._keys(section):
                self._declare(Symbol(space, name), facets, (section, name))
        train = self._get("data", TRAIN)
        if isinstance(train, dict) and train.keys().isdisjoint(("source", "class", "batch")):
            for name in train.keys() - {MIX}:
                self._declare(Symbol("data", name, TRAIN), (), ("data", TRAIN, name))
        for block in self._keys("blocks"):
            for name in self._keys("blocks", block, "args"):
                self._declare(Symbol("variable", name, block), (), ("blocks", block, "args", name))
            for path, name in self._list("blocks", block, "inputs"):
                self._declare(Symbol("name", name, block), ("input",), path, is_key=False)
            self._outputs[block] = tuple(name for _, name in self._list("blocks", block, "outputs"))
        found = [*self._declare_ops(("ops",), "")]
        for block in self._keys("blocks"):
            found += self._declare_ops(("blocks", block, "ops"), block)
        for path, op, scope in found:
            self._visit_op(path, op, scope)
        self._visit_document()
        self._visit_interpolations(self._document.data, ())
        return Names(
            declared=self._declared,
            mentions=tuple(self._mentions),
            hidden=frozenset(self._hidden),
            uses=self._uses,
            outputs=self._outputs,
            around=self._around,
        )

    def _get(self, *path: str | int) -> Plain:
        """Return what stands at a path; None where nothing does."""
        return look(self._document.data, path)

    def _keys(self, *path: str | int) -> tuple[str, ...]:
        found = self._get(*path)
        return tuple(found) if isinstance(found, dict) else ()

    def _declare(
        self, symbol: Symbol, facets: tuple[Facet, ...], path: Path, *, op: OpBase | None = None, is_key: bool = True
    ) -> None:
        span = self._spell(path, symbol.name, is_key=is_key)
        whole = self._document.value_span(path)
        if span is None:
            self._hidden.add(symbol)
            span = self._document.key_span(path)
        else:
            self._mentions.append(Mention(symbol=symbol, span=span))
        found = Declared(symbol=symbol, facets=facets, path=path, span=span, whole=whole, op=op)
        self._declared.setdefault(symbol, found)

    def _list(self, *path: str | int) -> list[tuple[Path, str]]:
        """Return the names of a list, or the one that stands in its place, with their paths."""
        found = self._get(*path)
        if isinstance(found, list):
            return [((*path, index), each) for index, each in enumerate(found) if isinstance(each, str)]
        return [(path, found)] if isinstance(found, str) else []

    def _declare_ops(self, path: Path, scope: str) -> Iterator[tuple[Path, OpBase, str]]:
        """Declare the ops at a path, those that they hold, and their values; yield those that can be read."""
        written = self._get(*path)
        for name, data in written.items() if isinstance(written, dict) else ():
            symbol, op = Symbol("name", name, scope), self._parse(data, scope)
            kinds = find_kinds(data) if isinstance(data, dict) else ()
            guess: tuple[Facet, ...] = ("op", "update") if "update" in kinds else ("op", "value")
            self._declare(symbol, guess if op is None else find_facets(name, op), (*path, name), op=op)
            if op is None:
                continue
            if isinstance(op, UseOp):
                self._uses[symbol] = op.use
            held = [*find_held(data)] if isinstance(data, dict) else []
            if held:
                inside = hold_scope(scope, name)
                self._around[inside], self._uses[symbol] = scope, inside
                for place, _ in held:
                    yield from self._declare_ops((*path, name, *place), inside)
                listed = self._list(*path, name, "outputs")
                self._outputs[inside] = tuple(each for _, each in listed) or self._keys(*path, name, "else")
                for place, each in listed:
                    self._mention_value(each, place, inside)
                yield (*path, name), op, scope
                continue
            outputs = data.get("outputs") if isinstance(data, dict) else None
            listed = outputs if isinstance(outputs, list) else [outputs]
            for index, each in enumerate(listed):
                place = (*path, name, "outputs", *((index,) if isinstance(outputs, list) else ()))
                for value in each if isinstance(each, dict) else [each] if isinstance(each, str) else []:
                    inside = (*place, value) if isinstance(each, dict) else place
                    known = Symbol("name", value, scope)
                    if known != symbol:
                        self._declare(known, ("value",), inside, op=op, is_key=isinstance(each, dict))
                    else:
                        self._mention(known, inside, is_key=isinstance(each, dict))
            yield (*path, name), op, scope

    def _parse(self, data: Plain, scope: str) -> OpBase | None:
        """Return an op, as far as it can be read: keys that are wrong are left out."""
        filled = self._fill(data, scope)
        if not isinstance(filled, dict):
            return None
        is_formula_op = "expr" in filled and not find_kinds(filled)
        kind = FormulaOp if is_formula_op else None
        sound: dict[str, Plain] = {key: value for key, value in filled.items() if value is not None}
        try:
            return parse_op(filled) or (None if kind is None else kind.model_validate(filled)) or parse_op(sound)
        except ValidationError:
            return None

    def _fill(self, value: Plain, scope: str) -> Plain:
        """Return a value with its variables in place, as far as they are needed to tell what kind of value it is."""
        match value:
            case str():
                found = INTERPOLATION.fullmatch(value)
                if found is None or found["name"] is None:
                    return value
                name = found["name"]
                constant = self._get("blocks", scope.partition("/")[0], "args", name) if scope else None
                constant = self._get("vars", name) if constant is None else constant
                is_known = constant is not None and not (isinstance(constant, str) and "${" in constant)
                return constant if is_known else 1
            case dict():
                return {key: self._fill(each, scope) for key, each in value.items()}
            case list():
                return [self._fill(each, scope) for each in value]
            case _:
                return value

    def _visit_op(self, path: Path, op: OpBase, scope: str) -> None:
        """Find what an op mentions."""
        formula = _find_formula(op)
        for reference in op.references():
            if reference.path != (formula,):
                self._mention_value(reference.name, (*path, *reference.path), scope)
        if formula is not None:
            text, span = getattr(op, formula), self._document.value_span((*path, formula))
            source = self._texts[span.file]
            start = source.offset(span.line, span.column)
            places = place_characters(source.content[start : source.offset(span.end_line, span.end_column)], text)
            try:
                operands = tuple(find_operands(read_expression(text, VALUES)))
            except ExpressionError:
                operands = ()
            for each in (each for each in operands if not each.name.startswith("${")):
                if each.start in places:
                    self._mention_parts(each.name, source, start + places[each.start], scope)
                else:
                    self._hidden.add(self._find("name", each.name.partition(".")[0], scope))
        for index, word in enumerate(op.dataset or ()):
            name = word.removeprefix("!")
            self._mention(Symbol("data", name, TRAIN), (*path, "dataset", index), before=word[: -len(name)])
        if isinstance(op, UseOp):
            self._mention(Symbol("block", op.use), (*path, "use"))
            for key in op.inputs.keyword:
                self._mention(Symbol("name", key, op.use), (*path, "inputs", key), is_key=True)
            for key in op.args:
                self._mention(Symbol("variable", key, op.use), (*path, "args", key), is_key=True)
            for key in op.models:
                self._mention(Symbol("name", key), (*path, "models", key), is_key=True)

    def _visit_document(self) -> None:
        """Find what the other parts of a document mention."""
        for path, name in self._list("outputs"):
            self._mention_value(name, path, "")
        for block in self._keys("blocks"):
            for path, name in self._list("blocks", block, "outputs"):
                self._mention_value(name, path, block)
        for model in self._keys("models"):
            for path, name in self._list("models", model, "like"):
                self._mention_value(name, path, "")
            for path, name in self._list("models", model, "traits", "ties"):
                self._mention_value(name, path, "")
        for keys in (("images", "value"), ("best", "metric"), ("stop", "metric")):
            for path, name in self._list("run", *keys):
                self._mention_value(name, path, "")
        for path, name in self._list("run", "eval", "data"):
            self._mention(Symbol("data", name), path)
        for path, name in self._list("run", "eval", "dataset"):
            self._mention(Symbol("data", name, TRAIN), path)
        for name in self._keys("data", TRAIN, MIX):
            self._mention(Symbol("data", name, TRAIN), ("data", TRAIN, MIX, name), is_key=True)
        sources: list[tuple[str, ...]] = [("data", role) for role in self._keys("data")]
        sources += [("data", TRAIN, name) for name in self._keys("data", TRAIN)]
        for source in sources:
            for name in self._keys(*source, "columns"):
                self._mention(Symbol("name", name), (*source, "columns", name), is_key=True)

    def _visit_interpolations(self, value: Plain, path: Path) -> None:
        """Find the variables that texts use."""
        match value:
            case str() if "${" in value:
                span = self._document.value_span(path)
                source = self._texts[span.file]
                start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
                scope = str(path[1]) if len(path) > 1 and path[0] == "blocks" else ""
                for found in INTERPOLATION.finditer(source.content, start, end):
                    for word in _WORD.finditer(source.content, *found.span("name")) if found["name"] else ():
                        symbol = self._find("variable", word.group(), scope)
                        if symbol in self._declared:
                            self._mentions.append(Mention(symbol=symbol, span=source.span(*word.span())))
            case dict():
                for key, each in value.items():
                    self._visit_interpolations(each, (*path, key))
            case list():
                for index, each in enumerate(value):
                    self._visit_interpolations(each, (*path, index))
            case _:
                pass

    def _mention_value(self, name: str, path: Path, scope: str) -> None:
        """Record the mention of a name that may have dots."""
        span = self._spell(path, name)
        if span is None:
            self._hidden.add(self._find("name", name.partition(".")[0], scope))
        else:
            source = self._texts[span.file]
            self._mention_parts(name, source, source.offset(span.line, span.column), scope)

    def _mention_parts(self, name: str, source: SourceText, start: int, scope: str) -> None:
        """Record the op and the value of `now.action`, which is of the block that the op uses."""
        first, *rest = name.split(".")
        symbol = self._find("name", first, scope)
        self._mentions.append(Mention(symbol=symbol, span=source.span(start, start + len(first))))
        for part in rest:
            start += len(symbol.name) + 1
            if symbol not in self._uses:
                return
            symbol = Symbol("name", part, self._uses[symbol])
            self._mentions.append(Mention(symbol=symbol, span=source.span(start, start + len(part))))

    def _mention(self, symbol: Symbol, path: Path, *, is_key: bool = False, before: str = "") -> None:
        span = self._spell(path, symbol.name, is_key=is_key, before=before)
        if span is None:
            self._hidden.add(symbol)
        else:
            self._mentions.append(Mention(symbol=symbol, span=span))

    def _find(self, space: Space, name: str, scope: str) -> Symbol:
        own = Symbol(space, name, scope)
        if own in self._declared or not scope:
            return own if own in self._declared else Symbol(space, name)
        return self._find(space, name, self._around.get(scope, ""))

    def _spell(self, path: Path, name: str, *, is_key: bool = False, before: str = "") -> Span | None:
        """Return where a key or a value spells a name, without quotes; None where it does not."""
        span = self._document.key_span(path) if is_key else self._document.value_span(path)
        source = self._texts[span.file]
        start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
        written = source.content[start:end]
        quote = written[:1] if written[:1] in ('"', "'") else ""
        if written != f"{quote}{before}{name}{quote}":
            return None
        start += len(quote) + len(before)
        return source.span(start, start + len(name))
