"""Rules on names: how they are spelled, that no two things share one, and what those that others mention must name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from graphspec.analysis.scope import Facet, RuleContext, find_expression
from graphspec.declare.fields import KEYWORDS, is_name, is_part_name
from graphspec.declare.ops import AdaptOp, CopyOp, EmaOp, ForwardOp, GradientOp, Reference, Role, UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import fix_name


def check_spelling(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse names that the generated source could not use."""
    for name, (entry, *_) in scope.entries.items():
        # A dot is of an op of a block, or a value of one, as in `now.action`; and of an input of an earlier batch.
        first, *inner = name.split(".") if entry.path[0] in ("ops", "inputs") else [name]
        if is_name(first) and all(map(is_part_name, inner)):
            continue
        why = "is a Python keyword" if name in KEYWORDS else "is not a name"
        help = "a name has letters, digits and `_`, does not begin with a digit, and is not a Python keyword"
        yield scope.report("GS102", f"{name!r} {why}", entry.path, key=entry.is_key, help=help)


def check_clashes(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse a second declaration of a name: inputs, states, models, ops and values share one namespace."""
    for first, *others in scope.entries.values():
        for other in others:
            message = f"'{other.name}' is declared twice: as {first.role}{scope.place(first)} and as {other.role}"
            help = "inputs, states, models, ops and values share one namespace: rename one of them"
            yield scope.report("GS101", message, other.path, key=other.is_key, label="declared again here", help=help)


def check_repeats(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse a name that stands twice in a list where each counts once."""
    lists: list[tuple[str, Path, tuple[str, ...] | None]] = [("`outputs`", ("outputs",), scope.spec.outputs)]
    for op_name, op in scope.sound_ops():
        fields = {"after": op.after}
        match op:
            case UpdateOp():
                fields |= {"update": op.update, "gradients": op.gradients}
            case GradientOp():
                fields["wrt"] = op.wrt
            case _:
                pass
        lists += [(f"`{field}` of op '{op_name}'", ("ops", op_name, field), names) for field, names in fields.items()]
    for title, path, names in lists:
        seen: set[str] = set()
        for index, name in enumerate(names or ()):
            if name in seen:
                yield scope.report("GS109", f"{title} lists '{name}' twice", (*path, index), help="write it once")
            seen.add(name)


class Wanted(Struct, frozen=True, kw_only=True):
    """What a reference must name, in words and as facets, and how to fix an unknown name."""

    noun: str
    facets: frozenset[Facet]
    code: str
    help: str


_VALUE_HELP = "declare it under `inputs:`, write the op that defines it, or fix the name"


def _want(noun: str, *facets: Facet, code: str, help: str) -> Wanted:
    return Wanted(noun=noun, facets=frozenset(facets), code=code, help=help)


_MODEL = _want("a model", "model", code="GS103", help="declare it under `models:` or fix the name")
_SOURCE = _want("a model", "model", "average", code="GS103", help=_MODEL.help)
_CALLED = _want("a model", "model", "average", "derived", code="GS103", help=_MODEL.help)
_ADAPTED = _want("a model", "model", "derived", code="GS103", help=_MODEL.help)
_VALUE = _want("a value", "input", "state", "value", code="GS104", help=_VALUE_HELP)
_TARGET = _want("a model or a value", "model", "derived", "input", "value", code="GS104", help=_VALUE_HELP)
_STATE = _want("a state", "state", code="GS104", help="declare it under `state:` or fix the name")
_OP = _want("an op", "op", code="GS105", help="write the name of an op, or leave it out")
_UPDATE = _want("an update", "update", code="GS105", help="write a number, or the name of an update")

WANTED: Mapping[Role, Wanted] = {
    "model": _MODEL,
    "source": _SOURCE,
    "called": _CALLED,
    "adapted": _ADAPTED,
    "rate": _MODEL,
    "value": _VALUE,
    "loss": _VALUE,
    "gradients": _VALUE,
    "target": _TARGET,
    "state": _STATE,
    "op": _OP,
    "update": _UPDATE,
}


def check_ops(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check every name that an op mentions."""
    for name, op in scope.spec.ops.items():
        whole = find_expression(op)
        field = "" if whole is None else f"the expression of '{whole}'"
        for reference in op.references():
            if whole is not None and find_expression(scope.spec.ops.get(reference.name)) == whole:
                continue
            if name in scope.broken and reference.name.count("(") > reference.name.count(")"):
                continue  # a text without quotes that ends before its comma: what follows is reported as a key
            path: Path = ("ops", name, *reference.path)
            yield from check_reference(scope, field or f"`{reference.path[0]}` of op '{name}'", path, reference)


def check_document(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check the names that `outputs` and `run.images` mention."""
    named: list[tuple[str, Path, str]] = [
        ("`outputs`", ("outputs", index), name) for index, name in enumerate(scope.spec.outputs or ())
    ]
    if scope.spec.run.images is not None:
        named.append(("`run.images`", ("run", "images", "value"), scope.spec.run.images.value))
    for field, path, name in named:
        yield from check_reference(scope, field, path, Reference(path=path, name=name, role="value"))


def check_reference(scope: RuleContext, field: str, path: Path, reference: Reference) -> Iterator[Diagnostic]:
    """Check one mention of a name; ``field`` says in words where it stands."""
    name, wanted = reference.name, WANTED[reference.role]
    entry = scope.find(name)
    # A second declaration of a name is reported at the declaration; a reference may mean either.
    is_right = any(not wanted.facets.isdisjoint(each.facets) for each in scope.entries.get(name, ()))
    if is_right or name in scope.broken or name.partition(".")[0] in scope.broken or (entry is None and scope.blind):
        return
    label = scope.suggest(name, scope.names(wanted.facets))
    if entry is None:
        message = f"{field} names '{name}', which is not declared; expected {wanted.noun}"
        remedy = fix_name(name) if wanted in (_VALUE, _TARGET) else ""
        yield scope.report(wanted.code, message, path, label="" if remedy else label, help=remedy or wanted.help)
        return
    # What the mistaken thing is made of was probably meant, else the most similar name of the right kind.
    op = scope.spec.ops.get(entry.op) if entry.op is not None else None
    if "op" in wanted.facets and entry.facets == ("value",):
        label = f"did you mean its op '{entry.op}'?"
    elif op is not None and "value" in wanted.facets and op.defines(entry.name)[:1] not in ((), (entry.name,)):
        label = f"did you mean its output '{op.defines(entry.name)[0]}'?"
    elif isinstance(op, UpdateOp) and "value" in wanted.facets and op.loss is not None:
        label = f"did you mean its loss '{op.loss}'?"
    elif isinstance(op, ForwardOp) and "model" in wanted.facets:
        label = f"did you mean its model '{op.forward}'?"
    elif isinstance(op, EmaOp | CopyOp) and op.into is not None and "model" in wanted.facets:
        label = f"did you mean '{op.into}', into which it writes?"
    help = wanted.help
    if wanted in (_MODEL, _SOURCE, _CALLED, _ADAPTED):
        help = "write the name of a model, as declared under `models:`"
    elif wanted is _VALUE:
        help = "write the name of an input or a state, or of an op that has a value"
        if not {"model", "average", "derived"}.isdisjoint(entry.facets):
            help = "call the model in a `forward` op and use that op's name"
    message = f"{field} must name {wanted.noun}, found '{name}', {entry.title}{scope.place(entry)}"
    yield scope.report("GS106", message, path, label=label, help=help)


def check_likeness(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that every `like` names a model, and that chains of likenesses, averages and `adapt` end at a model."""
    following: dict[str, tuple[str, Path, str, str]] = {}
    for name, model in scope.spec.models.items():
        if model.like is not None:
            path: Path = ("models", name, "like")
            reference = Reference(path=path, name=model.like, role="model")
            yield from check_reference(scope, f"`like` of model '{name}'", path, reference)
            help = "give one of them a `class`, `layers` or a `parameter`"
            following[name] = model.like, path, f"model '{name}' is like itself", help
    for name, op in scope.spec.ops.items():
        match op:
            case EmaOp(into=None):
                help = "one of them has to average a model"
                following.setdefault(name, (op.ema, ("ops", name, "ema"), f"op '{name}' averages itself", help))
            case AdaptOp():
                help = "a second step is an op of its own, as in `again: {adapt: first, ...}`"
                following.setdefault(name, (op.adapt, ("ops", name, "adapt"), f"op '{name}' adapts itself", help))
            case _:
                pass
    reported: set[str] = set()
    for name, (_, path, said, help) in following.items():
        if name in reported or name in scope.origins:
            continue
        way: dict[str, None] = {}
        last = name
        while last in following and last not in way:
            way[last] = None
            last = following[last][0]
        if last == name:
            reported.update(way)
            others = [repr(other) for other in way if other != name]
            through = f" through {', '.join(others)}" if others else ""
            yield scope.report("GS108", f"{said}{through}", path, help=help)


def check_ties(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that declared ties name parameters of other models."""
    for name, model in scope.spec.models.items():
        for index, tie in enumerate(model.traits.ties if model.traits is not None else ()):
            path: Path = ("models", name, "traits", "ties", index)
            other, dot, parameter = tie.partition(".")
            if not dot or not parameter or other == name:
                help = "write `other_model.path.of.parameter`"
                yield scope.report("GS103", f"a tie names a parameter of another model, found '{tie}'", path, help=help)
            else:
                reference = Reference(path=path, name=other, role="model")
                yield from check_reference(scope, f"`ties` of model '{name}'", path, reference)
