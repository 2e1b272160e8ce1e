"""Updates that an overflow may skip: no number of steps stands for them, and windows do without those steps."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from runtime import build
from tests.features.steps import build_step, weights

SPEC = """graphspec: 1
name: counted
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: 1}], optimizer: sgd}
  b: {layers: [{linear: 1}], optimizer: sgd}
  slow: {like: a}
ops:
  one: {forward: a, inputs: x}
  other: {forward: b, inputs: x}
  fit: {loss: mse, inputs: [one, 0.0]}
  fit_other: {loss: mse, inputs: [other, 0.0]}
  step: {update: a, loss: fit}
  step_other: {update: b, loss: fit_other}
  follow: {ema: a, into: slow, decay: 0.9}
"""
SCALED = "precision={loss_scale: 8}"
TIMED = (
    "ops.step.until=3 updates",
    "ops.follow.start=3 updates",
    "ops.follow.until=3 updates",
    "models.a.groups=[{match: weight, frozen: {until: 3 updates}}]",
)


@pytest.mark.parametrize("setting", TIMED)
@pytest.mark.parametrize("cause", [SCALED, "ops.step.on_overflow=own"])
def test_moments_in_updates_that_may_be_skipped_are_refused(setting, cause):
    with pytest.raises(SpecError, match=r"E-PACE.*3 updates.*'step' is skipped in steps whose gradients"):
        compile_step(load(SPEC, [setting, cause]))


@pytest.mark.parametrize("setting", TIMED)
def test_they_are_counted_where_nothing_is_skipped(setting):
    steps = setting.replace("updates", "steps")
    modes = [compile_step(load(SPEC, [each])).program.modes for each in (setting, steps)]
    assert [mode.gates for mode in modes[0]] == [mode.gates for mode in modes[1]]
    compile_step(load(SPEC, [setting, SCALED, "ops.step.on_overflow=apply"]))
    compile_step(load(SPEC, [steps, SCALED]))


PACED = """
graphspec: 1
name: paced
inputs: {slope: {shape: [batch]}, burst: {shape: []}, weak: {shape: []}}
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 0.25}}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 0.25, momentum: 0.5}}
ops:
  one: {forward: a}
  other: {forward: b}
  fit: {call: mul, inputs: [one, burst]}
  sloped: {call: mul, inputs: [slope, other]}
  mean: {call: mean, inputs: sloped}
  fit_other: {call: mul, inputs: [mean, weak]}
  step: {update: a, loss: fit, on_overflow: own}
  step_other: {update: b, loss: fit_other, every: step, accumulate: 3, on_overflow: own}
outputs: [mean]
"""
INF = float("inf")
BURSTS = (1, INF, 1, INF, INF, 1, 1, 1, INF, 1, INF, 1, 1)
"""In the second, fourth, fifth and so on the update by which the window goes is skipped."""
WINDOWS = {
    "plain": (PACED, 0),
    "whole": (PACED.replace("accumulate: 3", "accumulate: {steps: 3, on_nonfinite: window}"), 0),
    "holed": (PACED.replace("accumulate: 3", "accumulate: {steps: 3, on_nonfinite: drop}"), 6),
    "spoiled": (PACED.replace("accumulate: 3", "accumulate: {steps: 3, on_nonfinite: window}"), 6),
    "open": (PACED.replace("accumulate: 3", "accumulate: 3, missing: skip"), 0),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_window_gathers_in_the_steps_in_which_the_update_it_goes_by_is_applied(kind, backend):
    text, weak = WINDOWS[kind]
    step = build_step(text, backend)
    one = other = 1.0
    momentum, window, taken = 0.0, [], 0
    for number, burst in enumerate(BURSTS, 1):
        slopes = np.arange(1.0, 3.0 + number % 3) * number
        step({"slope": slopes, "burst": np.asarray(float(burst)), "weak": np.asarray(INF if number == weak else 1.0)})
        if burst < INF:
            one -= 0.25
            taken += 1
            window.append(slopes if number != weak else None)
        if taken == 3:
            whole = [each for each in window if each is not None]
            if len(whole) == 3 or kind == "holed":
                momentum = 0.5 * momentum + np.concatenate(whole).mean()
                other -= 0.25 * momentum
            window, taken = [], 0
        found = {name: value.item() for name, value in weights(step).items()}
        assert found == pytest.approx({"a.value": one, "b.value": other}, rel=1e-12), number


def test_a_window_may_be_forgotten_with_an_epoch_and_not_flushed():
    kept = "ops.step_other.accumulate={steps: 3, on_epoch_end: %s}"
    compile_step(load(PACED, [kept % "drop"]), pace=Pace(epoch=4, batch=2))
    with pytest.raises(SpecError, match=r"E-PACE.*'step_other' applies what it has gathered.*'step' is skipped"):
        compile_step(load(PACED, [kept % "flush"]), pace=Pace(epoch=4, batch=2))


def test_an_update_that_no_step_reaches_has_no_verdicts(backend):
    kept = "ops.step.accumulate={steps: 3, on_epoch_end: drop}"
    plan = compile_step(load(PACED, [kept, "ops.step.on_overflow=null"]), backend, pace=Pace(epoch=2, batch=2))
    step = build(plan, device="cpu", dtype="float64")
    for _ in range(5):
        step({"slope": np.ones(2), "burst": np.asarray(1.0), "weak": np.asarray(1.0)})
    assert weights(step) == {"a.value": 1.0, "b.value": 1.0}
