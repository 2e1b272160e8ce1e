"""Projections of an update: the constraints of its own, or those of its models."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ops.context import Lowering
from compiler.projection import Projection
from graphspec.constraints import ConstraintSpec
from graphspec.ops import UpdateOp


def find_projections(op: UpdateOp, context: Lowering) -> Iterator[Projection]:
    """Yield what the parameters of an update are made to satisfy once they are stepped, in order."""
    for model in op.update:
        for each in op.constraint or context.spec.models[model].constraint or ():
            yield _project(model, each, context)


def _project(model: str, declared: ConstraintSpec, context: Lowering) -> Projection:
    """Return one constraint as it applies to a model."""
    low, high = declared.clip or (0.0, declared.max_norm or 0.0)
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
