"""Projections of an update: its own constraints, or those of its models; then those that the models bring along."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from compiler.operands import Scheduled
from compiler.ops.context import Lowering
from compiler.projection import Projection
from graphspec.constraints import ConstraintSpec
from graphspec.ops import UpdateOp


def find_projections(name: str, op: UpdateOp, models: Collection[str], context: Lowering) -> Iterator[Projection]:
    """Yield what the parameters of those models that an update steps are made to satisfy then, in order."""
    for model in (each for each in op.update if each in models):
        written = op.constraint or context.spec.models[model].constraint or ()
        for index, each in enumerate((*written, *context.models[model].terms.constraints)):
            yield _project(model, each, context, (name, model, "constraint", index))


def _project(model: str, declared: ConstraintSpec, context: Lowering, place: tuple[str | int, ...]) -> Projection:
    """Return one constraint as it applies to a model."""
    low, high = _find_limits(declared, context, place)
    axis = declared.axis
    return Projection(
        model=model,
        kind=declared.kind,
        match=declared.match,
        low=low,
        high=high,
        axis=(axis,) if isinstance(axis, int) else axis,
        function="" if declared.function is None else declared.function.name(context.backend),
    )


def _find_limits(
    declared: ConstraintSpec, context: Lowering, place: tuple[str | int, ...]
) -> tuple[float | Scheduled, float | Scheduled]:
    """Return the numbers of a constraint that has some."""
    if declared.clip is not None:
        low, high = (context.number(each, *place, "clip", end) for end, each in enumerate(declared.clip))
        return low, high
    return 0.0, context.number(declared.max_norm or 0.0, *place, "max_norm")
