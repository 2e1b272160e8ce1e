"""A `regularizer` is a term of its model; its gradient is added once per step, for any losses and updates."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("A8")

SPEC = """
graphspec: 1
name: regularized
models:
  v: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 0.1}, regularizer: REGULARIZER}
ops:
  a: {forward: v}
  one: {call: sum, inputs: a}
  two: {loss: mse, inputs: [a, 0.0], reduction: sum}
  both: {call: add, inputs: [one, two]}
  UPDATES
outputs: [both]
"""
ONE = "step: {update: v, loss: both}"
SEQUENCE = "first: {update: v, loss: one}\n  second: {update: v, loss: two, after: first}"
LISTED_BACK = "second: {update: v, loss: two, after: first}\n  first: {update: v, loss: one}"
RESTING = "first: {update: v, loss: one, every: 2}\n  second: {update: v, loss: two, after: first}"
V = np.array([1.0, -2.0])


def run(regularizer: str, updates: str, backend: str) -> tuple[np.ndarray, float]:
    """Return the variable after a step from [1, -2], and the loss that the step gives back."""
    step = build_step(SPEC.replace("REGULARIZER", regularizer).replace("UPDATES", updates), backend)
    set_weights(step, {"v.value": V})
    both = step.numpy(step({})["both"])
    return weights(step)["v.value"], float(both)


@pytest.mark.parametrize("updates", [ONE, SEQUENCE, LISTED_BACK])
def test_l2_with_two_losses_on_one_model_counts_once(updates: str, backend: str) -> None:
    found, _ = run("{l2: 0.5}", updates, backend)
    assert np.allclose(found, V - 0.1 * (1 + 2 * V + V))


def test_the_first_update_that_fires_carries_it(backend: str) -> None:
    found, _ = run("{l2: 0.5}", RESTING, backend)
    assert np.allclose(found, V - 0.1 * (2 * V + V))


def test_it_is_no_part_of_the_losses_that_are_given_back(backend: str) -> None:
    assert run("{l2: 0.5}", ONE, backend)[1] == -1 + 5


TERMS = {
    "{l1: 0.3}": 0.3 * np.sign(V),
    "{l1: 0.3, l2: 0.5}": 0.3 * np.sign(V) + V,
    "[{l2: 0.5}, {l1: 0.1}]": V + 0.1 * np.sign(V),
    "{function: {torch: 'tests.features.terms:quartic_of_torch', "
    "tensorflow: 'tests.features.terms:quartic_of_tensorflow'}}": 4 * V**3,
}


@pytest.mark.parametrize("regularizer", TERMS)
def test_every_kind_adds_its_slope(regularizer: str, backend: str) -> None:
    found, _ = run(regularizer, ONE, backend)
    assert np.allclose(found, V - 0.1 * (1 + 2 * V + TERMS[regularizer]), rtol=1e-14)


def test_it_is_clipped_with_the_rest_of_the_gradient(backend: str) -> None:
    found, _ = run("{l2: 5}", "step: {update: v, loss: both, clip: {norm: 1}}", backend)
    slope = 1 + 2 * V + 10 * V
    assert np.allclose(found, V - 0.1 * slope / np.linalg.norm(slope))


def test_it_is_added_to_gradients_that_other_ops_give(backend: str) -> None:
    given = (
        "set: {gradient: both, wrt: v}\n  half: {call: mul, inputs: [set, 0.5]}\n  step: {update: v, gradients: half}"
    )
    found, _ = run("{l2: 0.5}", given, backend)
    assert np.allclose(found, V - 0.1 * (0.5 * (1 + 2 * V) + V))


def test_second_derivatives_do_not_see_it(backend: str) -> None:
    steep = "slope: {gradient: both, wrt: a}\n  steep: {loss: mse, inputs: [slope, 0.0], reduction: sum}"
    found, _ = run("{l2: 0.5}", f"{steep}\n  step: {{update: v, loss: steep}}", backend)
    assert np.allclose(found, V - 0.1 * (4 * (1 + 2 * V) + V))
