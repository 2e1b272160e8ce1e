"""Signatures of ops: the options of the library's function that an op calls."""

from __future__ import annotations

from graphspec.declare.library import FUNCTIONS
from graphspec.declare.ops import CallOp, LossOp, MetricOp, Op, RandomOp, TransformOp
from graphspec.declare.options import Option


def find_options(op: Op) -> tuple[Option, ...]:
    """Return the options of the function of the library that an op calls; none of a user's, or where it calls none."""
    match op:
        case (
            CallOp(call=function) | LossOp(loss=function) | MetricOp(metric=function) | TransformOp(transform=function)
        ):
            known = function.name("torch") if function.is_builtin else None
        case RandomOp():
            known = op.random
        case _:
            return ()
    return () if known is None else FUNCTIONS[op.kind][known].options
