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
inputs: {x: {shape: [batch, 2]}, burst: {shape: []}}
models:
  a: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.25}}
  slow: {like: a}
ops:
  one: {forward: a, inputs: x}
  mean: {call: mean, inputs: one}
  fit: {call: mul, inputs: [mean, burst]}
  step: {update: a, loss: fit}
  follow: {ema: a, into: slow, decay: 0.5}
outputs: [mean]
"""
SCALED = "precision={loss_scale: 8}"
OWN = "ops.step.on_overflow=own"
INF = float("inf")
BURSTS = (1, INF, 1, INF, INF, 1, 1, 1, INF, 1, INF, 1, 1)
"""In the second, fourth, fifth and so on the update is skipped."""


class ByHand:
    """The loop of SPEC that somebody would write: a linear model, its plain average, and counts of what was applied."""

    def __init__(self, start):
        self.weights, self.slow = start["a"], start["slow"]
        self.applied = self.followed = 0
        self.gathered = []

    def step(self, x, burst, *, until=INF, window=1, frozen=0, start=0, end=INF, every=1):
        """Take a step; ``until`` to ``every`` are in updates of the model."""
        if self.applied >= until:
            return
        self.gathered.append(None if burst == INF else {"weight": x.mean(axis=0)[None], "bias": np.ones(1)})
        if len(self.gathered) < window:
            return
        slopes, self.gathered = self.gathered, []
        if None in slopes:
            return
        slope = {name: sum(each[name] for each in slopes) / window for name in slopes[0]}
        for name in slope if self.applied >= frozen else ["bias"]:
            self.weights[name] = self.weights[name] - 0.25 * slope[name]
        self.applied += 1
        if start <= self.applied <= end:
            first = 0 if start else 1  # with a start the first one is due
            if (self.followed + first) % every == 0:
                kept = 0.0 if start and self.followed == 0 else 0.5  # with a start it begins as a copy
                self.slow = {name: kept * self.slow[name] + (1 - kept) * each for name, each in self.weights.items()}
            self.followed += 1


CASES = {
    "update-until": (["ops.step.until=3 updates"], {"until": 3}),
    "window-until": (
        ["ops.step.until=2 updates", "ops.step.accumulate={steps: 2, on_nonfinite: window}"],
        {"until": 2, "window": 2},
    ),
    "frozen-until": (["models.a.groups=[{match: weight, frozen: {until: 3 updates}}]"], {"frozen": 3}),
    "average-start": (["ops.follow.start=3 updates"], {"start": 3}),
    "average-until": (["ops.follow.until=3 updates"], {"end": 3}),
    "average-between": (["ops.follow.start=2 updates", "ops.follow.until=5 updates"], {"start": 2, "end": 5}),
    "every-second": (["ops.follow.start=3 updates", "ops.follow.every=2"], {"start": 3, "every": 2}),
    "every-second-until": (["ops.follow.until=5 updates", "ops.follow.every=2"], {"end": 5, "every": 2}),
    "with-the-update": (["ops.follow.start=3 updates", "ops.follow.every=step"], {"start": 3}),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cause", [SCALED, OWN])
def test_starts_and_ends_in_updates_count_what_was_applied(case, cause, backend):
    settings, numbers = CASES[case]
    step = build(compile_step(load(SPEC, [*settings, cause]), backend), device="cpu", dtype="float64")
    by_hand = ByHand(named(step))
    state = None
    for number, burst in enumerate(BURSTS, 1):
        x = np.arange(4.0).reshape(2, 2) + number
        if number == 7:  # what was counted is part of the state
            step = build(compile_step(load(SPEC, [*settings, cause]), backend), device="cpu", dtype="float64")
            step.restore(state)
        step({"x": x, "burst": np.asarray(float(burst))})
        by_hand.step(x, burst, **numbers)
        found = named(step)
        for model, meant in (("a", by_hand.weights), ("slow", by_hand.slow)):
            for name, each in meant.items():
                np.testing.assert_allclose(found[model][name], each, rtol=1e-12, err_msg=f"{number} {model} {name}")
        state = step.state()


def test_a_state_that_did_not_count_them_is_refused(backend):
    settings, _ = CASES["average-start"]
    plain = build(compile_step(load(SPEC, settings), backend), device="cpu", dtype="float64")
    counting = build(compile_step(load(SPEC, [*settings, OWN]), backend), device="cpu", dtype="float64")
    for _ in range(5):
        plain({"x": np.ones((2, 2)), "burst": np.asarray(1.0)})
    with pytest.raises(SpecError, match=r"GS264.*'?gates\.train\.follow\.applied"):
        counting.restore(plain.state())


def named(step):
    """Return the weights of a step by model and parameter."""
    found = {"a": {}, "slow": {}}
    for name, value in weights(step).items():
        model, _, parameter = name.partition(".")
        found[model][parameter.rpartition(".")[2]] = value
    return found


@pytest.mark.parametrize("case", CASES)
def test_they_are_steps_where_nothing_is_skipped(case):
    settings, _ = CASES[case]
    steps = [each.replace("updates", "steps") for each in settings]
    if case != "window-until":
        modes = [compile_step(load(SPEC, each)).program.modes for each in (settings, steps)]
        assert [mode.gates for mode in modes[0]] == [mode.gates for mode in modes[1]]
    for unskipped in (settings, [*settings, SCALED, "ops.step.on_overflow=apply"], [*steps, SCALED]):
        gates = [gate for mode in compile_step(load(SPEC, unskipped)).program.modes for gate in mode.gates]
        assert not any(gate.is_counted for gate in gates)


def test_the_plan_says_what_is_counted():
    plan = compile_step(load(SPEC, [*CASES["average-between"][0], *CASES["frozen-until"][0], OWN]))
    text = str(plan)
    assert "follow starts with update 2 by step and ends with update 5 by step; skipped ones do not count" in text
    assert "'weight' of a is frozen until update 3 by step (until: 3 updates)" in text
    assert [len(mode.functions) for mode in plan.program.modes if mode.mode == "train"] == [4]


SHARED = """graphspec: 1
name: shared
inputs: {x: {shape: [batch, 2]}}
models: {a: {layers: [{linear: 1}], optimizer: sgd, groups: [{match: weight, frozen: {until: 3 updates}}]}}
ops:
  one: {forward: a, inputs: x}
  fit: {loss: mse, inputs: [one, 0.0]}
  step: {update: a, loss: fit, on_overflow: own}
  again: {update: a, loss: fit, every: 2, on_overflow: own, after: step}
"""


def test_a_freeze_that_two_updates_may_skip_is_refused():
    with pytest.raises(SpecError, match=r"E-PACE.*3 updates.*several updates share the optimizer of 'a'"):
        compile_step(load(SHARED))


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
