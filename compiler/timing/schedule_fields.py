"""Places of schedules: which fields of an op, or of what models say of their updates, hold one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from graphspec.declare.base import Declaration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops import Op, ScheduleOp, UpdateOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.schedules import ScheduleSpec

Place: TypeAlias = tuple[str | int, ...]


def find_schedules(op: Op) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield every schedule of an op with its place below the op.

    Not those of an optimizer, nor those of the constraints of an update, which count updates of each model's optimizer.
    """
    if isinstance(op, ScheduleOp):
        yield (), op.curve
    else:
        found = _find_below(op, ())
        yield from (each for each in found if not (isinstance(op, UpdateOp) and each[0][0] == "constraint"))


def find_term_schedules(spec: GraphSpec, op: UpdateOp, model: str) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield every schedule of the constraints and regularizers with which an update steps a model.

    Its place begins with the field: ``("constraint", 0, "max_norm")``.
    """
    declared = spec.models[model]
    yield from _find_below(op.constraint or declared.constraint or (), ("constraint",))
    yield from _find_below(declared.regularizer or (), ("regularizer",))


def _find_below(value: object, place: Place) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield the schedules in a value: itself, or what its fields or items hold."""
    match value:
        case ScheduleSpec():
            yield place, value
        case OptimizerSpec():
            return
        case Inputs():
            for key, operand in value.items():
                yield from _find_below(operand, (*place, key))
        case Declaration():
            for key, item in _find_fields(value):
                yield from _find_below(item, (*place, key))
        case Mapping():
            for key, item in cast("Mapping[str, object]", value).items():
                yield from _find_below(item, (*place, key))
        case list() | tuple():
            for index, item in enumerate(cast("Sequence[object]", value)):
                yield from _find_below(item, (*place, index))
        case _:
            return


def _find_fields(value: Declaration) -> Iterator[tuple[str, object]]:
    """Yield the fields of a declaration by their names in the language."""
    written: Mapping[str, object] = dict(value)
    yield from ((field.alias or name, written[name]) for name, field in type(value).model_fields.items())
