"""`missing: skip` in windows that go without what is not finite: a dropped step counts nothing for any parameter."""

from __future__ import annotations

import numpy as np
import pytest

from runtime import Step
from tests.features.cuts import assert_goes_on
from tests.features.paced import build_paced
from tests.features.steps import weights

SPEC = """
graphspec: 1
name: gaps
inputs: {x: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  head: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0, weight_decay: 0.5}}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w]}
  cost: {call: mean, inputs: product}
  h: {forward: head}
  scaled: {call: mul, inputs: [x, h]}
  loss: {loss: wasserstein, inputs: scaled, args: {sign: 1.0}, every: 2, lazy: none}
  both: {call: add, inputs: [cost, loss]}
  step: {update: [net, head], loss: both, missing: skip, accumulate: {steps: 3}, on_overflow: own}
"""
"""The slope of either is the mean of the batch; that of the head is there in every second step."""
WHOLE = "ops.step.accumulate.on_nonfinite=window"
FLUSH = "ops.step.accumulate.on_epoch_end=flush"
BAD = np.inf


def walk(step: Step, slopes: list[float]) -> tuple[float, float]:
    """Return both weights after steps on batches of one row."""
    for slope in slopes:
        step({"x": np.array([float(slope)])})
    return float(weights(step)["net.value"]), float(weights(step)["head.value"])


def begin(backend: str, *settings: str) -> Step:
    return build_paced(SPEC, backend, settings, epoch=4)


def test_a_gradient_of_dropped_steps_alone_is_absent(backend: str) -> None:
    assert np.allclose(walk(begin(backend), [1, BAD, 4]), (-2.5, 1.0))


def test_absent_adds_nothing_and_the_step_counts(backend: str) -> None:
    assert np.allclose(walk(begin(backend), [1, 2, 6]), (-3, 1 - 2 / 3 - 0.5))


def test_a_dropped_step_counts_nothing_for_any(backend: str) -> None:
    assert np.allclose(walk(begin(backend), [1, 2, BAD]), (-1.5, 1 - 2 / 2 - 0.5))


def test_all_of_it_is_new_in_the_next_window(backend: str) -> None:
    step = begin(backend)
    assert np.allclose(walk(step, [1, 2, BAD]), (-1.5, -0.5))
    assert np.allclose(walk(step, [BAD, 8, BAD]), (-9.5, -0.5))  # only a step without the head is taken in
    assert np.allclose(walk(step, [BAD, 4, BAD]), (-13.5, -0.5 - (4 + 0.5 * -0.5)))


def test_a_window_is_lost_as_a_whole_where_it_is_asked_for(backend: str) -> None:
    step = begin(backend, WHOLE)
    assert walk(step, [1, 2, BAD]) == (0, 1)
    assert np.allclose(walk(step, [3, 6, 9]), (-6, 1 - (3 + 9) / 3 - 0.5))


def test_an_epoch_ends_it_too(backend: str) -> None:
    step = begin(backend, FLUSH)
    assert np.allclose(walk(step, [1, BAD, 4, 8]), (-10.5, 1 - 8 - 0.5))


@pytest.mark.sample(3)
@pytest.mark.parametrize("settings", [(), (WHOLE,), (FLUSH,)])
def test_a_run_goes_on_in_the_middle_of_a_window(backend: str, settings: tuple[str, ...]) -> None:
    slopes = [1, 2, BAD, BAD, 16, BAD, 32, 64, BAD]
    assert_goes_on(lambda: begin(backend, *settings), walk, slopes, cuts=(1, 2, 4, 5, 7))


BESIDE = SPEC.replace(
    "models:\n", "models:\n  other: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}\n"
)
BESIDE = BESIDE.replace("ops:\n", "ops:\n  aside: {update: other, loss: amount}\n").replace(
    "on_overflow: own", "on_overflow: group"
)
BESIDE += """
  o: {forward: other}
  moved: {call: mul, inputs: [x, o]}
  amount: {call: mean, inputs: moved}
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("settings", [(), (WHOLE,)])
def test_a_step_that_only_gathers_is_told_apart_behind_another_update(backend: str, settings: tuple[str, ...]) -> None:
    changed = ("ops.loss.every=3", "ops.step.accumulate.steps=2", *settings)
    step = build_paced(BESIDE, backend, changed, epoch=8)
    first = step.state()
    assert np.allclose(walk(step, [1, 2, 6, 4]), (-1.5 - 5, 1 - 6 / 2 - 0.5))  # the head has a slope in the third step
    assert weights(step)["other.value"] == -13
    step.restore(first)
    assert np.allclose(walk(step, [1, 2, BAD, 4]), (-1.5 - (0 if settings else 4), 1.0))
    assert weights(step)["other.value"] == -7
    assert_goes_on(lambda: build_paced(BESIDE, backend, changed, epoch=8), walk, [1, 2, 6, 4], cuts=(1, 2, 3))


LED = (
    SPEC.replace("{x: {shape: [batch]}}", "{x: {shape: [batch]}, z: {shape: [batch]}}")
    .replace("models:", "models:\n  leader: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}")
    .replace("accumulate: {steps: 3}", "accumulate: {steps: 2}, every: first")
    + """  led: {forward: leader}
  pulled: {call: mul, inputs: [z, led]}
  pull: {call: mean, inputs: pulled}
  first: {update: leader, loss: pull, on_overflow: own}
  second: {update: leader, loss: pull, after: first, on_overflow: own}
"""
)
"""The window goes by an update that is held where `z` is not finite: `second` asks for that before the window."""


def test_a_window_with_gaps_is_restored_where_the_update_it_goes_by_is_held(
    backend: str,
) -> None:
    step = build_paced(LED, backend, (), epoch=100)
    for x, z in ((2, BAD), (1, 1), (5, BAD), (4, 1)):
        step({"x": np.array([float(x)]), "z": np.array([float(z)])})
    found = weights(step)
    assert found["leader.value"] == -4
    assert np.allclose((found["net.value"], found["head.value"]), (-(1 + 4) / 2, 1 - (1 + 4) / 2 - 0.5))
    for x, z in ((6, 1), (8, BAD), (10, 1)):  # the head has a gradient in the step that is held alone
        step({"x": np.array([float(x)]), "z": np.array([float(z)])})
    found = weights(step)
    assert found["leader.value"] == -8
    assert np.allclose((found["net.value"], found["head.value"]), (-2.5 - (6 + 10) / 2, -2))
