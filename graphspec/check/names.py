"""Rules on declared names: they are spelled as names, and no two things share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from graphspec.analysis.scope import Entry, Facet, Scope
from graphspec.declare.names import KEYWORDS, is_name
from graphspec.declare.ops import ForwardOp, GradientOp, Op, Reference, Role, UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path


def check_spelling(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse names that the generated source could not use."""
    for name, (entry, *_) in scope.entries.items():
        if is_name(name):
            continue
        why = "is a word of Python" if name in KEYWORDS else "is not a name"
        help = "a name has letters, digits and `_`, does not begin with a digit, and is no word of Python"
        yield scope.report("GS102", f"{name!r} {why}", entry.path, key=entry.is_key, help=help)


def check_clashes(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a second declaration of a name: inputs, states, models, ops and values share one namespace."""
    for entries in scope.entries.values():
        yield from _check_clash(scope, entries)


def _check_clash(scope: Scope, entries: tuple[Entry, ...]) -> Iterable[Diagnostic]:
    first, *others = entries
    for other in others:
        message = f"'{other.name}' is declared twice: as {first.role}{scope.place(first)} and as {other.role}"
        help = "inputs, states, models, ops and values share one namespace: rename one of them"
        yield scope.report("GS101", message, other.path, key=other.is_key, label="declared again here", help=help)


def check_repeats(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a name that stands twice in a list where each counts once."""
    yield from _check(scope, "`outputs`", ("outputs",), scope.spec.outputs or ())
    for name, op in scope.sound_ops():
        for field, names in _find_lists(name, op):
            yield from _check(scope, f"`{field}` of op '{name}'", ("ops", name, field), names)


def _find_lists(name: str, op: Op) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "after", op.after or ()
    match op:
        case UpdateOp():
            yield "update", op.update
            yield "gradients", op.gradients or ()
        case GradientOp():
            yield "wrt", op.wrt
        case _:
            pass


def _check(scope: Scope, field: str, path: Path, names: tuple[str, ...]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield scope.report("GS109", f"{field} lists '{name}' twice", (*path, index), help="write it once")
        seen.add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a reference must name, in words and as facets, and how to fix an unknown name."""

    noun: str
    facets: tuple[Facet, ...]
    code: str
    help: str


_VALUE_HELP = "declare it under `inputs:`, write the op that defines it, or fix the name"
_MODEL = Wanted(noun="a model", facets=("model",), code="GS103", help="declare it under `models:` or fix the name")
_SOURCE = Wanted(noun="a model", facets=("model", "average"), code="GS103", help=_MODEL.help)
_VALUE = Wanted(noun="a value", facets=("input", "state", "value"), code="GS104", help=_VALUE_HELP)
_TARGET = Wanted(noun="a model or a value", facets=("model", "input", "value"), code="GS104", help=_VALUE_HELP)
_STATE = Wanted(noun="a state", facets=("state",), code="GS104", help="declare it under `state:` or fix the name")
_OP = Wanted(noun="an op", facets=("op",), code="GS105", help="write the name of an op, or leave it out")
_UPDATE = Wanted(noun="an update", facets=("update",), code="GS105", help="write a number, or the name of an update")

WANTED: Mapping[Role, Wanted] = {
    "model": _MODEL,
    "source": _SOURCE,
    "value": _VALUE,
    "loss": _VALUE,
    "gradients": _VALUE,
    "target": _TARGET,
    "state": _STATE,
    "op": _OP,
    "update": _UPDATE,
}


def check_ops(scope: Scope) -> Iterator[Diagnostic]:
    """Check every name that an op mentions."""
    for name, op in scope.spec.ops.items():
        for reference in op.references():
            path: Path = ("ops", name, *reference.path)
            yield from check_reference(scope, f"`{reference.path[0]}` of op '{name}'", path, reference)


def check_document(scope: Scope) -> Iterator[Diagnostic]:
    """Check the names that `outputs` and `run.images` mention."""
    for index, name in enumerate(scope.spec.outputs or ()):
        yield from _check_value(scope, "`outputs`", ("outputs", index), name)
    images = scope.spec.run.images
    if images is not None:
        yield from _check_value(scope, "`run.images`", ("run", "images", "value"), images.value)


def _check_value(scope: Scope, field: str, path: Path, name: str) -> Iterator[Diagnostic]:
    yield from check_reference(scope, field, path, Reference(path=path, name=name, role="value"))


def check_reference(scope: Scope, field: str, path: Path, reference: Reference) -> Iterator[Diagnostic]:
    """Check one mention of a name; ``field`` says in words where it stands."""
    name, wanted = reference.name, WANTED[reference.role]
    entry = scope.find(name)
    if name in scope.broken or (entry is None and scope.blind):
        return
    # A second declaration of a name is reported at the declaration; a reference may mean either.
    facets = frozenset(facet for each in scope.entries.get(name, ()) for facet in each.facets)
    if entry is None:
        message = f"{field} names '{name}', which is not declared; expected {wanted.noun}"
        label = scope.suggest(name, scope.names(wanted.facets))
        yield scope.report(wanted.code, message, path, label=label, help=wanted.help)
    elif facets.isdisjoint(wanted.facets):
        message = f"{field} must name {wanted.noun}, found '{name}', {entry.title}{scope.place(entry)}"
        yield scope.report("GS106", message, path, label=_suggest(scope, entry, wanted), help=_explain(entry, wanted))


def _suggest(scope: Scope, entry: Entry, wanted: Wanted) -> str:
    """Name what the mistaken thing is made of, or the most similar name of the right kind."""
    op = scope.spec.ops.get(entry.op) if entry.op is not None else None
    if "op" in wanted.facets and entry.facets == ("value",):
        return f"did you mean its op '{entry.op}'?"
    if op is not None and "value" in wanted.facets and op.defines(entry.name):
        return f"did you mean its output '{op.defines(entry.name)[0]}'?"
    if isinstance(op, UpdateOp) and "value" in wanted.facets and op.loss is not None:
        return f"did you mean its loss '{op.loss}'?"
    if isinstance(op, ForwardOp) and "model" in wanted.facets:
        return f"did you mean its model '{op.forward}'?"
    return scope.suggest(entry.name, scope.names(wanted.facets))


def _explain(entry: Entry, wanted: Wanted) -> str:
    if wanted in (_MODEL, _SOURCE):
        return "write the name of a model, as declared under `models:`"
    if wanted is _VALUE and not frozenset(("model", "average")).isdisjoint(entry.facets):
        return "call the model in a `forward` op and use that op's name"
    return "write the name of an input or a state, or of an op that has a value" if wanted is _VALUE else wanted.help
