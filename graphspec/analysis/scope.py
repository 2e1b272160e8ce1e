"""The scope: every name of a spec, what it names and where it is declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from graphspec.analysis.derived import find_derived
from graphspec.analysis.gradient_sets import Sets, find_gradient_sets
from graphspec.declare.formulas import LOSS
from graphspec.declare.graph import GraphSpec
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import (
    AdaptOp,
    AssignOp,
    CallOp,
    CopyOp,
    EmaOp,
    LossOp,
    MetricOp,
    Op,
    OpBase,
    UpdateOp,
)
from graphspec.diagnostics import Diagnostic, Span
from graphspec.read.source import Path
from graphspec.words import closest

Facet: TypeAlias = Literal["input", "state", "model", "average", "derived", "op", "update", "write", "value"]
"""What a name can be; the name of an op is often its value's too, and that of an update an op's."""


class Entry(Struct, frozen=True, kw_only=True):
    """One declaration of a name: what it is, the path of its declaration, and the op that makes it."""

    name: str
    facets: tuple[Facet, ...]
    path: Path
    is_key: bool = True
    op: str | None = None

    @property
    def role(self) -> str:
        """Return what is declared, as a noun phrase."""
        return "an op" if "op" in self.facets else self.title

    @property
    def title(self) -> str:
        """Return what the name is, as a noun phrase."""
        match self.facets:
            case ("input",):
                return "an input"
            case ("state",):
                return "a state"
            case ("model",):
                return "a model"
            case ("value",):
                return f"a value of op '{self.op}'"
            case ("op", *rest):
                return _OPS.get(tuple(rest), "an op")
            case _:
                return "a name"


_OPS: Mapping[tuple[str, ...], str] = {
    ("update",): "an update, which has no value",
    ("average",): "the average kept by an ema",
    ("write",): "an op that writes a model or a state, and has no value",
    ("derived",): "a derived model, which nothing writes",
    ("value",): "the value of an op",
    (): "an op whose values have their own names",
}


class RuleContext(Struct, frozen=True, kw_only=True):
    """A spec with its names; nothing is held against ``broken`` ones, nor, if ``blind``, against any unknown one."""

    spec: GraphSpec
    entries: Mapping[str, tuple[Entry, ...]]
    sets: Sets
    origins: Mapping[str, ModelSpec]
    """The declaration of what every model, average and derived model is made of, through likenesses."""
    broken: frozenset[str] = frozenset()
    blind: bool = False

    def kind_of(self, name: str) -> str | None:
        """Return what a model, average or derived model is made of: class, layers or parameter; None of no such one."""
        origin = self.origins.get(name)
        return None if origin is None else origin.kind

    def find(self, name: str) -> Entry | None:
        """Return the first declaration of a name."""
        found = self.entries.get(name, ())
        return found[0] if found else None

    def sound_ops(self) -> Iterator[tuple[str, Op]]:
        """Yield every op that could be read as it is written, with its name."""
        for name, op in self.spec.ops.items():
            if name not in self.broken:
                yield name, op

    def names(self, facets: Iterable[Facet]) -> Iterator[str]:
        """Yield every name that has one of the facets, in the order of the document."""
        wanted = frozenset(facets)
        return (name for name, entries in self.entries.items() if not wanted.isdisjoint(entries[0].facets))

    def place(self, entry: Entry) -> str:
        """Return where a name is declared, in words for the end of a sentence."""
        span = self.spec.span(*entry.path, key=entry.is_key)
        return "" if span is None else f" (line {span.line})"

    def suggest(self, name: str, candidates: Iterable[str]) -> str:
        """Return the label that names what was probably meant, or nothing."""
        near = closest(name, candidates, 1)
        if not near:
            return ""
        entry = self.find(near[0])
        return f"did you mean '{near[0]}'{self.place(entry) if entry is not None else ''}?"

    def report(
        self,
        code: str,
        message: str,
        path: Path,
        *,
        key: bool = False,
        label: str = "",
        notes: tuple[str, ...] = (),
        help: str = "",
    ) -> Diagnostic:
        """Return an error at a part of the spec, or at its key."""
        span: Span | None = self.spec.span(*path, key=key)
        return Diagnostic(code=code, message=message, span=span, label=label, notes=notes, help=help)


def find_expression(op: Op | None) -> str | None:
    """Return the value of the expression of which an op is a part, itself included; None where it is of none."""
    return op.expr if isinstance(op, CallOp | LossOp) else None


def list_reported(spec: GraphSpec) -> tuple[str, ...]:
    """Return the ops whose values a step returns where the spec has no ``outputs``: losses and metrics.

    The expression of an update's ``loss`` is a loss too, also one that ends in a call; its parts are not.
    """
    written = {LOSS.format(name) for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    return tuple(
        name
        for name, op in spec.ops.items()
        if (isinstance(op, LossOp | MetricOp) or name in written) and find_expression(op) in (None, name)
    )


def find_facets(name: str, op: OpBase) -> tuple[Facet, ...]:
    """Return what the name of an op can be."""
    if isinstance(op, UpdateOp):
        return ("op", "update")
    if isinstance(op, EmaOp) and op.into is None:
        return ("op", "average")
    if isinstance(op, AdaptOp):
        return ("op", "derived")
    if isinstance(op, EmaOp | CopyOp | AssignOp):
        return ("op", "write")
    return ("op", "value") if name in op.defines(name) else ("op",)


def build_scope(spec: GraphSpec, broken: frozenset[str] = frozenset(), *, blind: bool = False) -> RuleContext:
    """Return the scope of a spec."""
    sections: tuple[tuple[Facet, str, Iterable[str]], ...] = (
        ("input", "inputs", spec.inputs),
        ("state", "state", spec.state),
        ("model", "models", spec.models),
    )
    found = [Entry(name=name, facets=(facet,), path=(key, name)) for facet, key, names in sections for name in names]
    for name, op in spec.ops.items():
        if find_expression(op) not in (None, name):
            continue  # a part of an expression is no name
        found.append(Entry(name=name, facets=find_facets(name, op), path=("ops", name), op=name))
        for index, value in enumerate(op.defines(name)):
            if value != name:
                path = ("ops", name, "outputs", index)
                found.append(Entry(name=value, facets=("value",), path=path, is_key=False, op=name))
    listed: dict[str, list[Entry]] = {}
    for entry in found:
        listed.setdefault(entry.name, []).append(entry)
    entries = {name: tuple(each) for name, each in listed.items()}
    sets = find_gradient_sets(spec)
    # What every model, average and derived model is made of, unless likenesses lead nowhere, or round.
    following = {name: model.like for name, model in spec.models.items()}
    following |= {name: op.ema for name, op in spec.shadows().items() if name not in following}
    following |= {name: model for name, model in find_derived(spec).items() if name not in following}
    made: dict[str, ModelSpec | None] = {name: model for name, model in spec.models.items() if model.like is None}
    for start in following:
        way: dict[str, None] = {}
        each: str | None = start
        while each is not None and each not in made and each not in way:
            way[each] = None
            each = following.get(each)
        made |= dict.fromkeys(way, made.get(each) if each is not None else None)
    origins = {name: model for name, model in made.items() if model is not None and name not in broken}
    return RuleContext(spec=spec, entries=entries, sets=sets, origins=origins, broken=broken, blind=blind)
