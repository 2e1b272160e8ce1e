"""Rules on models: likenesses, ties, and what an update needs of the models it steps."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.analysis.scope import Scope
from graphspec.check.names import check_reference
from graphspec.declare.ops import Reference, UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path


def check_likeness(scope: Scope) -> Iterator[Diagnostic]:
    """Check that every `like` names a model, and that likenesses end at a model of another kind."""
    seen: set[str] = set()
    for name, model in scope.spec.models.items():
        if model.like is None:
            continue
        path: Path = ("models", name, "like")
        reference = Reference(path=path, name=model.like, role="model")
        yield from check_reference(scope, f"`like` of model '{name}'", path, reference)
        circle = () if name in seen or name in scope.kinds else _find_circle(scope, name)
        seen.update(circle)
        if circle:
            way = f" by way of {', '.join(repr(other) for other in circle[1:])}" if len(circle) > 1 else ""
            message = f"model '{name}' is like itself{way}"
            help = "give one of them a `class`, `layers` or a `parameter`"
            yield scope.report("GS108", message, path, help=help)


def _find_circle(scope: Scope, start: str) -> tuple[str, ...]:
    """Return the likenesses that lead from a model back to it, or nothing."""
    seen: dict[str, None] = {}
    name: str | None = start
    while name is not None and name not in seen:
        seen[name] = None
        model = scope.spec.models.get(name)
        name = model.like if model is not None else None
    return tuple(seen) if name == start else ()


def check_ties(scope: Scope) -> Iterator[Diagnostic]:
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


def check_optimizers(scope: Scope) -> Iterator[Diagnostic]:
    """Check that every model an update steps has an optimizer, unless the update brings its own."""
    for name, op in scope.sound_ops():
        if not isinstance(op, UpdateOp) or op.optimizer is not None:
            continue
        for index, target in enumerate(op.update):
            model = scope.spec.models.get(target)
            if model is not None and model.optimizer is None and target not in scope.broken:
                yield _lacking(scope, name, index, target)


def _lacking(scope: Scope, op: str, index: int, model: str) -> Diagnostic:
    entry = scope.find(model)
    where = "" if entry is None else scope.place(entry)
    message = f"op '{op}' updates model '{model}'{where}, which has no optimizer"
    help = f"write `optimizer: adam` in model '{model}', or in this update"
    return scope.report("GS107", message, ("ops", op, "update", index), help=help)
