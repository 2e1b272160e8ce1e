"""Which ops fire together where windows end with epochs: what the compiler foresees is what a long run meets."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import asdict

from compiler import Pace, compile_step
from compiler.ir.program import Gate
from compiler.timing.firing_sets import enumerate_patterns
from graphspec import SpecError, load
from runtime.support import clocks
from tests.features.paced import build_paced
from tests.features.test_epoch_ends import SPEC


def random_gates(random: Random, epoch: int) -> list[Gate]:
    """Return the gates of an update that accumulates, of its end, and of an average behind it."""
    spread = {"start": random.choice([None, 2]), "until": random.choice([None, 9, 40])}
    gathers = Gate(op="gathers", every=random.choice([1, 2, 3]), **spread)
    is_flush, window, period = random.random() < 0.5, random.choice([2, 3, 4]), random.choice([1, 2, 3])
    update = Gate(op="update", clock="writes", every=window, follows=(("gathers",),), epoch=epoch, flush=is_flush)
    drop = [] if is_flush else [Gate(op="drop", clock="epochs", epoch=epoch)]
    return [gathers, update, *drop, Gate(op="average", clock="writes", every=period, follows=(("update",),))]


def meet(gates: list[Gate], steps: int) -> set[frozenset[str]]:
    """Return what fires together in the steps of a run."""
    clock = clocks.Clock()
    running = clocks.Gates(clock, {"train": [clocks.Gate(**asdict(gate)) for gate in gates]})
    found: set[frozenset[str]] = set()
    for _ in range(steps):
        clock.start("train")
        found.add(frozenset(running.fire("train")))
        clock.finish()
    return found


@pytest.mark.parametrize("epoch", [1, 2, 3, 5, 7, 12, 101])
def test_a_long_run_meets_what_is_foreseen(epoch):
    random = Random(epoch)
    for _ in range(15):
        gates = random_gates(random, epoch)
        assert set(enumerate_patterns(gates, frozenset())) == meet(gates, 2000), gates


def test_long_epochs_are_not_walked_step_by_step():
    gates = [
        Gate(op="gathers", every=7),
        Gate(op="update", clock="writes", every=4, follows=(("gathers",),), epoch=10**9 + 7, flush=True),
    ]
    assert set(enumerate_patterns(gates, frozenset())) == {
        frozenset(fired) for fired in ((), ("gathers",), ("gathers", "update"), ("update",))
    }


NUMBER = """
graphspec: 1
name: weighed
inputs: {x: {shape: [batch]}, rate: {shape: []}}
models: {net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w], dataset: [a, '!b']}
  cost: {call: mean, inputs: product}
  slope: {gradient: cost, wrt: net}
  half: {call: mul, inputs: [0.5, cost]}
  weighed: {call: mul, inputs: [slope, half]}
  step: {update: net, gradients: weighed, accumulate: {steps: 2, on_epoch_end: flush}}
"""


@pytest.mark.parametrize("value", ["half", "rate"])
def test_a_number_that_only_other_data_sets_have_is_refused(value):
    with pytest.raises(SpecError, match=rf"E-ABSENT\]: 'weighed' uses '{value}' at the end of an epoch"):
        build_paced(NUMBER, "torch", (f"ops.weighed.inputs=[slope, {value}]",), epoch=3)


@pytest.mark.needs("torch")
def test_a_number_is_used_where_the_window_ends_in_a_step_that_has_it():
    build_paced(NUMBER, "torch", ("ops.step.accumulate.on_epoch_end=drop",), epoch=3)


def test_the_spec_itself_is_fine():
    assert load(SPEC).ops["step"].at_epoch_end == "flush"


FOLLOWING = """
graphspec: 1
name: following
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 2]}}
precision: {loss_scale: dynamic}
models:
  a: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
  b: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
ops:
  of_a: {forward: a, inputs: x}
  cost_a: {loss: mse, inputs: [of_a, y]}
  step_a: {update: a, loss: cost_a, on_overflow: apply}
  of_b: {forward: b, inputs: x}
  cost_b: {loss: mse, inputs: [of_b, y]}
  step_b: {update: b, loss: cost_b, accumulate: {steps: 2, on_epoch_end: drop}, every: step_a, dataset: one}
"""


def test_an_epoch_may_end_in_a_step_that_has_nothing_to_restore():
    plan = compile_step(load(FOLLOWING), pace=Pace(epoch=5, batch=2))
    ends = {one.kind() for each in plan.program.mode("train").functions for one in each.instructions}
    assert {"accumulate", "take_accumulated", "reset_accumulator"} <= ends
