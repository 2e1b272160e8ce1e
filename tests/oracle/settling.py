"""What changes with the steps, settled: schedules of ops and models as numbers, groups as frozen or not."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from graphspec.declare.base import Declaration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import ForwardOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.schedules import ScheduleSpec
from tests.oracle.clocks import Clocks
from tests.oracle.meaning import Meaning
from tests.oracle.schedules import read


def settle(meaning: Meaning, steps: int, clocks: Clocks, standins: Mapping[str, str]) -> Meaning:
    """Return a mode in a step behind some train steps; what counts an optimizer's updates is left as it is.

    ``standins``: averages that every forward of their models calls, whether as in training or not.
    """
    found = meaning.forget_writes()
    counts = {"steps": steps, "samples": steps * clocks.pace.rows, "epochs": steps // clocks.pace.epoch}
    found.ops = {name: _call(_settle(op, counts), standins) for name, op in meaning.ops.items()}
    spec = meaning.spec
    models = {name: _settle(_settle_groups(spec, name, steps + 1, clocks), counts) for name in spec.models}
    found.whole, found.spec = spec, spec.model_copy(update={"models": models})
    return found


def _call(op: object, standins: Mapping[str, str]) -> object:
    """Return an op with the average that it calls."""
    return op.model_copy(update={"forward": standins.get(op.forward, op.forward)}) if isinstance(op, ForwardOp) else op


def _settle_groups(spec: GraphSpec, name: str, step: int, clocks: Clocks) -> ModelSpec:
    """Return a model whose groups are frozen, or are not, as they are in a step."""
    model = spec.models[name]
    groups = tuple(
        group
        if group.until is None
        else group.model_copy(update={"frozen": clocks.is_frozen(spec, name, group.until, step)})
        for group in model.groups
    )
    return model.model_copy(update={"groups": groups})


def settle_updates(value: object, applied: int) -> object:
    """Return a declaration whose schedules of updates are the numbers behind so many."""
    return _settle(value, {"updates": applied})


def _settle(value: object, counts: Mapping[str, int]) -> object:
    match value:
        case ScheduleSpec():
            return read(value, counts[value.clock]) if value.clock in counts else value
        case OptimizerSpec():
            return value
        case Declaration():
            settled = {name: _settle(item, counts) for name, item in value}
            changed = {name: each for name, each in settled.items() if each is not getattr(value, name)}
            return value.model_copy(update=changed) if changed else value
        case dict():
            settled = {key: _settle(item, counts) for key, item in value.items()}
            return value if all(each is value[key] for key, each in settled.items()) else settled
        case tuple() | list():
            settled = tuple(_settle(item, counts) for item in value)
            return value if all(map(is_, settled, value)) else settled
        case _:
            return value
