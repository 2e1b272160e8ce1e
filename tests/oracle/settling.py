"""Schedules in the fields of ops, settled: each replaced by the number that it gives in one step."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from graphspec.declaration import Declaration
from graphspec.optimizers import OptimizerSpec
from graphspec.schedules import ScheduleSpec
from tests.oracle.clocks import Pace
from tests.oracle.meaning import Meaning
from tests.oracle.schedules import read


def settle(meaning: Meaning, steps: int, pace: Pace) -> Meaning:
    """Return a mode in a step behind some train steps; what counts an optimizer's updates is left as it is."""
    found = copy(meaning)
    counts = {"steps": steps, "samples": steps * pace.rows, "epochs": steps // pace.epoch}
    found.ops = {name: _settle(op, counts) for name, op in meaning.ops.items()}
    return found


def _settle(value: object, counts: Mapping[str, int]) -> object:
    match value:
        case ScheduleSpec():
            return read(value, counts[value.clock]) if value.clock in counts else value
        case OptimizerSpec():
            return value
        case Declaration():
            return value.model_copy(update={name: _settle(item, counts) for name, item in dict(value).items()})
        case dict():
            return {key: _settle(item, counts) for key, item in value.items()}
        case tuple() | list():
            return tuple(_settle(item, counts) for item in value)
        case _:
            return value
