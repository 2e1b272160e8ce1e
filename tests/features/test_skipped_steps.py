"""A step with non-finite gradients changes nothing: weights, slots, counts, schedules, averages, constraints."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, StepError, build
from tests.features.overflows import INF, SPEC, give, made
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("B2")

MOMENTUM = "models.v.optimizer={name: sgd, lr: 1.0, momentum: 0.9}"
FOLLOWED = SPEC.replace("  v: {", "  slow: {like: v}\n  hard: {like: v}\n  v: {").replace(
    "precision:",
    "  average: {ema: v, into: slow, decay: 0.9}\n  second: {copy: v, into: hard, every: 2}\nprecision:",
)
RULES = ["sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion", "lamb", "lars"]
RULES += ["adafactor", "ftrl", "rprop", "schedule_free_sgd", "schedule_free_adamw"]


def tensors(step: Step) -> dict[str, bytes]:
    return {name: step.numpy(value).tobytes() for name, value in step.tensors().items()}


def test_weights_and_momentum_are_those_of_the_steps_that_count(backend: str) -> None:
    step = made(backend, [MOMENTUM])
    set_weights(step, {"v.value": [1.0, 2.0]})
    seen = []
    for slope in (1.0, 1.0, INF, 1.0):
        give(step, slope)
        seen.append((weights(step)["v.value"].tolist(), step.optimizers["v"].iterations))
    values, iterations = zip(*seen, strict=True)
    assert np.allclose(values, [[0, 1], [-1.9, -0.9], [-1.9, -0.9], [-4.61, -3.61]], atol=1e-6)
    assert iterations == (1, 2, 2, 3)  # LossScaleOptimizer: 1, 2, 2, 3; tf_keras: 1, 2, 3, 4


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", [[], [1.0]], ids=["before", "after"])
def test_slots_are_the_same_bits(rule: str, first: list[float], backend: str) -> None:
    step = made(backend, [f"models.v.optimizer={{name: {rule}, lr: 0.1}}"])
    for slope in first:
        give(step, slope)
    before = tensors(step)
    give(step, INF)
    assert tensors(step) == before
    assert step.optimizers["v"].iterations == len(first)
    plain = made(backend, [f"models.v.optimizer={{name: {rule}, lr: 0.1}}", "precision.loss_scale=none"])
    for slope in (*first, 2.0):
        give(plain, slope)
    give(step, 2.0)
    assert np.allclose(weights(step)["v.value"], weights(plain)["v.value"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("slope", [INF, -INF, float("nan")])
def test_what_follows_the_weights_waits_for_them(slope: float, backend: str) -> None:
    step = made(backend, text=FOLLOWED)
    for each in (1.0, slope, 1.0):
        give(step, each)
    found = weights(step)
    assert found["v.value"].tolist() == [-2.0, -2.0]
    assert found["hard.value"].tolist() == [-2.0, -2.0]  # the second write, in the third step
    assert np.allclose(found["slow.value"], -0.1 * 0.9 - 0.1 * 2, atol=1e-6)
    assert step.report.fired == ("step", "average", "second")


def test_a_skipped_step_reports_what_it_held_back_and_why(backend: str) -> None:
    step = made(backend, text=FOLLOWED)
    give(step, 1.0)
    give(step, [1.0, INF])
    report = step.report
    assert (report.fired, report.held) == ((), ("step", "average", "second"))
    update = report.updates["step"]
    assert (update.fired, update.skipped, update.nonfinite) == (False, True, "v.value")
    assert update.reason == "gradients of 'step' are not finite"


def test_schedules_and_constraints_wait_too(backend: str) -> None:
    falling = "models.v.optimizer.lr={schedule: linear, from: 1.0, to: 0.0, over: 4}"
    step = made(backend, [falling, "models.v.constraint={clip: [-1.5, 0.5]}"])
    set_weights(step, {"v.value": [5.0, 5.0]})
    give(step, INF)
    assert weights(step)["v.value"].tolist() == [5.0, 5.0]  # not clipped: nothing was written
    for slope in (1.0, INF, 1.0):
        give(step, slope)
    assert weights(step)["v.value"].tolist() == [-0.25, -0.25]  # 0.5 after the first, then 0.75 less
    assert step.optimizers["v"].learning_rate == 0.5


def test_without_a_scale_an_update_skips_where_it_says_so(backend: str) -> None:
    step = made(backend, ["precision.loss_scale=none", "ops.step.on_overflow=own"])
    for slope in (1.0, INF, 1.0):
        give(step, slope)
    assert weights(step)["v.value"].tolist() == [-2.0, -2.0]


def test_apply_writes_what_it_is_given_and_the_scale_still_shrinks(backend: str) -> None:
    step = made(backend, ["ops.step.on_overflow=apply", "precision.loss_scale={initial: 4}"])
    give(step, INF)
    assert not np.isfinite(weights(step)["v.value"]).any()
    assert step.report.scale_after == 2


def test_error_ends_the_step_before_it_writes(backend: str) -> None:
    step = made(backend, ["ops.step.on_overflow=error"])
    give(step, 1.0)
    with pytest.raises(SpecError, match=r"GS280.*the gradients of 'step' are not finite"):
        give(step, INF)
    assert step.numpy(step.tensors()["models.v.value"]).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize(("policy", "expected"), [("drop", -1.5), ("window", 0.0)])
def test_an_overflow_in_a_window_costs_its_step_or_the_window(policy: str, expected: float, backend: str) -> None:
    step = made(backend, [f"ops.step.accumulate={{steps: 3, reduce: steps, on_nonfinite: {policy}}}"])
    for slope in (1.0, INF, 2.0):
        give(step, slope)
    assert weights(step)["v.value"].tolist() == [expected] * 2
    for slope in (1.0, 1.0, 1.0):
        give(step, slope)
    assert weights(step)["v.value"].tolist() == [expected - 1.0] * 2


def test_a_window_without_anything_finite_is_skipped(backend: str) -> None:
    step = made(backend, ["ops.step.accumulate={steps: 2, reduce: steps}"])
    for slope in (INF, INF, 1.0, 3.0):
        give(step, slope)
    assert weights(step)["v.value"].tolist() == [-2.0, -2.0]
    assert step.optimizers["v"].iterations == 1


SHARED = """
graphspec: 1
name: shared
inputs: {a: {shape: [batch]}, b: {shape: [batch]}}
models:
  v: {parameter: {shape: []}}
  w: {parameter: {shape: []}}
ops:
  read_v: {forward: v}
  read_w: {forward: w}
  own: {expr: "mean(read_v * a)"}
  joint: {expr: "mean((read_v + read_w) * b)"}
  step_joint: {update: [v, w], loss: joint, optimizer: {name: sgd, lr: 1.0}, accumulate: 2, on_overflow: own}
  step_own: {update: v, loss: own, optimizer: {name: sgd, lr: 1.0}, shared: sum}
"""


def test_a_window_without_anything_finite_gives_nothing_to_an_update_that_shares_it(backend: str) -> None:
    step = build_step(SHARED, backend)
    seen = []
    for a, b in ((1.0, INF), (1.0, float("nan")), (0.0, 4.0), (0.0, 4.0)):
        step({"a": np.full(2, a), "b": np.full(2, b)})
        seen.append([float(weights(step)[f"{name}.value"]) for name in "vw"])
    assert seen == [[-1, 0], [-2, 0], [-2, 0], [-6, -4]]


@pytest.mark.needs("torch")
def test_a_program_whose_numbers_are_float64_may_look_at_gradients_too() -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        step = made("torch", [MOMENTUM])
        for slope in (1.0, INF):
            give(step, slope)
        assert step.optimizers["v"].iterations == 1
    finally:
        torch.set_default_dtype(torch.float32)


MEASURED = """
graphspec: 1
name: measured
inputs: {x: {shape: [batch, 2]}}
models: {a: {parameter: {shape: [2], init: ones}, optimizer: {name: sgd, lr: 0.1}}}
ops:
  weight: {forward: a}
  seen: {call: mul, inputs: [x, weight]}
  even: {call: square, inputs: seen}
  root: {call: sqrt, inputs: even}
  cost: {call: mean, inputs: root}
  slope: {gradient: cost, wrt: [a, seen], outputs: [slope, inner]}
  scaled: {call: mul, inputs: [slope, 2.0]}
  twice: {call: mul, inputs: [inner, 2.0]}
  length: {call: norm, inputs: twice}
  step: {update: a, gradients: scaled, on_overflow: POLICY}
outputs: [cost, length]
"""


def measured(backend: str, policy: str) -> Step:
    plan = compile_step(load(MEASURED.replace("POLICY", policy)), backend)
    return build(plan, device="cpu", debug=True)


def test_what_is_computed_from_skipped_gradients_is_no_finding(backend: str) -> None:
    step = measured(backend, "own")
    first = step({"x": np.ones((4, 2), np.float32)})
    assert np.isclose(step.numpy(first["length"]), 2 / 8**0.5, rtol=1e-6)  # 2 times an eighth, eight times
    assert np.allclose(weights(step)["a.value"], 1 - 0.1 * 2 / 2)
    skipped = step({"x": np.zeros((4, 2), np.float32)})  # the slope of the root at 0
    assert step.numpy(skipped["cost"]) == 0
    assert np.isnan(step.numpy(skipped["length"]))
    assert np.allclose(weights(step)["a.value"], 0.9)


def test_where_overflow_is_an_error_a_debugged_step_names_the_gradient(backend: str) -> None:
    step = measured(backend, "error")
    with pytest.raises(StepError, match=r"GS261.*op 'slope' \(gradient\): the gradient of 'cost' by 'a.value' has nan"):
        step({"x": np.zeros((4, 2), np.float32)})
    assert np.allclose(weights(step)["a.value"], 1.0)
