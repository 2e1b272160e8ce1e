"""Mutants of what is refused, said or counted, whatever the numbers of a step are."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.lower.context import LoweringContext
from graphspec.declare.ops import ForwardOp
from tests.properties import mutations as to
from tests.properties.mutant import Mutant


def grow_only(found: Mapping[str, object], written: Mapping[str, object]) -> dict[str, object]:
    """Let no other factor say what the scale shrinks by."""
    return {key: value for key, value in found.items() if key != "backoff_factor" or key in written}


def train_the_model(name: str, op: ForwardOp, context: LoweringContext) -> tuple:
    """Let no average stand in where a forward says `train: true`."""
    return name, op, replace(context, averages={}) if op.train else context


MUTANTS_OF_OUTCOMES = (
    Mutant(
        name="replicas-unseen",
        says="A module wrapped for several devices is accepted like any other.",
        place="runtime.backends.torch.models:REMEDIES",
        change=lambda original: {},
        killer="outcomes",
        case="replicas",
    ),
    Mutant(
        name="hooks-unseen",
        says="Parameter hooks that only `backward()` calls are not detected.",
        place="runtime.backends.torch.models:find_late_hook",
        change=to.give(""),
        killer="outcomes",
        case="hooked",
    ),
    Mutant(
        name="open-shapes-unchecked",
        says="A loss accepts any operands if only the step knows their shapes.",
        place="types.infer_types:is_open",
        change=to.give(False),
        killer="outcomes",
        case="column-and-rows",
    ),
    Mutant(
        name="multiplier-grows-only",
        says="TensorFlow's `multiplier` sets only the growth of the loss scale, not the backoff.",
        place="graphspec.declare.precision:_read_names",
        change=to.change(grow_only),
        killer="outcomes",
        case="multiplied-scale",
    ),
    Mutant(
        name="half-done-goes-on",
        says="A step that failed after a write is followed by others.",
        place="runtime.step:Step._break",
        change=lambda original: lambda step, error, mode: error,
        killer="outcomes",
        case="half-done",
    ),
    Mutant(
        name="types-unsaid",
        says="Parameters that a class creates in another dtype are silently converted.",
        place="runtime.backends.torch.observe_traits:TorchObserver._describe_converted",
        change=to.give(()),
        killer="outcomes",
        case="other-types",
    ),
    Mutant(
        name="no-stand-in-that-trains",
        says="An average does not stand in for its model if a forward says `train: true`.",
        place="lower.table:LOWERINGS",
        change=lambda table: {**table, ForwardOp: to.change_arguments(train_the_model)(table[ForwardOp])},
        killer="numbers",
        case="drilled",
    ),
)
