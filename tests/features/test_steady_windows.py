"""A window of constant length is a steady pace: half-lives and schedules count by it."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from compiler.timing.units import Pace
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

TWO = """
graphspec: 1
name: two
inputs: {x: {shape: [batch, 2]}}
models:
  a: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: 0.1}}
  b: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: 0.1}}
ops:
  of_a: {forward: a}
  of_b: {forward: b}
  near_a: {call: mul, inputs: [x, of_a]}
  near_b: {call: mul, inputs: [x, of_b]}
  fit_a: {call: mean, inputs: near_a}
  fit_b: {call: mean, inputs: near_b}
  step_a: {update: a, loss: fit_a}
  step_b: {update: b, loss: fit_b, WINDOW}
  average: {ema: a, half_life: 4 updates, every: step_b}
outputs: [fit_a]
"""


@pytest.mark.parametrize("window", ["accumulate: 3", "every: 3"])
def test_a_half_life_over_a_window_is_compounded_over_its_steps(backend: str, window: str) -> None:
    step = build_step(TWO.replace("WINDOW", window), backend)
    keep, average = 2 ** (-3 / 4), np.ones(2)
    for number in range(1, 7):
        step({"x": np.full((4, 2), float(number))})
        if number % 3 == 0:
            average = keep * average + (1 - keep) * weights(step)["a.value"]
    assert np.allclose(weights(step)["average.value"], average, atol=1e-12)


@pytest.mark.parametrize("window", ["accumulate: {steps: 3, on_epoch_end: flush}", "accumulate: 3, start: 2"])
def test_a_window_that_something_cuts_has_no_interval(window: str) -> None:
    with pytest.raises(SpecError, match="E-INTERVAL"):
        compile_step(load(TWO.replace("WINDOW", window)), pace=Pace(epoch=8))


FLUSHED = """
graphspec: 1
name: flushed
inputs: {x: {shape: [batch, 2]}}
models:
  a: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: {schedule: linear, from: 0.8, over: 2 epochs}}}
ops:
  of_a: {forward: a}
  near: {call: mul, inputs: [x, of_a]}
  fit: {call: mean, inputs: near}
  step: {update: a, loss: fit, accumulate: {steps: 4, on_epoch_end: END}}
outputs: [fit]
"""


@pytest.mark.parametrize("end", ["flush", "drop", "carry"])
def test_epochs_of_whole_windows_count_by_windows(end: str) -> None:
    plan = compile_step(load(FLUSHED.replace("END", end)), pace=Pace(epoch=8))
    lr = plan.program.optimizers[0].schedules["lr"]
    assert (lr.clock, lr.fields["over"]) == ("updates", 4)


@pytest.mark.parametrize("end", ["flush", "drop"])
@pytest.mark.parametrize("epoch", [6, 9, None])
def test_epochs_that_cut_a_window_have_no_pace(end: str, epoch: int | None) -> None:
    with pytest.raises(SpecError, match="E-PACE"):
        compile_step(load(FLUSHED.replace("END", end)), pace=Pace(epoch=epoch))
