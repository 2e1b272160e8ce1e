"""An average that stands in for its model is what every forward of an evaluation calls, `train: true` or not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: swap-training
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{batch_norm: {eps: 1.0e-5}}, {linear: 2}], optimizer: {name: sgd, lr: 0.5}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
  slow: {ema: net, decay: 0.9, buffers: copy, use: {eval: swap}}
  training: {forward: net, inputs: x, mode: eval, train: true}
  plain: {forward: net, inputs: x, mode: eval}
outputs: [loss, training, plain]
""".lstrip()


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_forward_as_in_training_calls_the_average_too(backend):
    step, random = build_step(SPEC, backend), np.random.default_rng(2)
    batch = {name: random.normal(size=(5, 2)) for name in "xy"}
    for _ in range(2):
        step(batch)
    before = {name: np.array(value) for name, value in weights(step).items()}
    found = np.asarray(step(batch, mode="eval")["training"])
    x = batch["x"]
    normed = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * before["slow.0.weight"] + before["slow.0.bias"]
    np.testing.assert_allclose(found, normed @ before["slow.1.weight"].T + before["slow.1.bias"], rtol=1e-9)
    after = weights(step)
    moved = {name for name, value in before.items() if not np.array_equal(value, after[name])}
    assert moved == {"slow.0.running_mean", "slow.0.running_var", "slow.0.num_batches_tracked"}
