"""An update takes a loss, which is a mean over the batch unless the spec says otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("A1")

LAYER = """
graphspec: 1
name: layer
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  y: {forward: net, inputs: x}
  cost: {loss: wasserstein, inputs: y}
  step: {update: net, loss: cost}
"""
TWO = """
graphspec: 1
name: two-losses
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: adam, lr: 0.1}}}
ops:
  y: {forward: net, inputs: x}
  one: {call: mean, inputs: y}
  three: {call: mul, inputs: [one, 3.0]}
"""
MERGED = "  both: {call: add, inputs: [one, three]}\n  step: {update: net, loss: both}\n"
SEQUENTIAL = "  first: {update: net, loss: one}\n  then: {update: net, loss: three, after: first}\n"


def test_a_mean_moves_the_weights_by_the_mean_over_the_samples(backend: str) -> None:
    step = build_step(LAYER, backend)
    set_weights(step, {"net.0.weight": [[1, 2, 3]]})
    step({"x": np.array([[2.0, 0.0, 1.0], [0.0, 2.0, 1.0]])})
    assert np.allclose(weights(step)["net.0.weight"], [[0.9, 1.9, 2.9]])


def test_a_sum_moves_them_by_the_sum(backend: str) -> None:
    step = build_step(LAYER, backend, ("ops.cost.reduction=sum",))
    set_weights(step, {"net.0.weight": [[1, 2, 3]]})
    step({"x": np.ones((4, 3))})
    assert np.allclose(weights(step)["net.0.weight"], [[0.6, 1.6, 2.6]])


@pytest.mark.parametrize(("ops", "weight"), [(MERGED, 0.9), (SEQUENTIAL, 0.8082)], ids=["merged", "sequential"])
def test_two_losses_of_one_model_are_added_up_or_applied_in_order_as_the_spec_says(
    ops: str, weight: float, backend: str
) -> None:
    step = build_step(TWO + ops, backend)
    set_weights(step, {"net.0.weight": [[1, 1]]})
    step({"x": np.array([[1.0, 2.0]])})
    assert np.allclose(weights(step)["net.0.weight"], weight, atol=1e-4)
