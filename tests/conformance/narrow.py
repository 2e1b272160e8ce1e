"""A small net with convolutions that computes in a lower precision: five steps of it."""

from __future__ import annotations

import numpy as np

from tests.features.steps import build_step, weights

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
SPEC = """graphspec: 1
name: near
precision: {0}
inputs: {{x: {{shape: [batch, 2, 6, 6]}}, y: {{shape: [batch, 3]}}}}
models:
  net:
    layers:
      - {{conv2d: {{out: 8, kernel: 3}}}}
      - group_norm: 2
      - {{residual: [{{conv2d: {{out: 8, kernel: 3, padding: 1}}}}, silu]}}
      - {{conv_transpose2d: {{out: 4, kernel: 3}}}}
      - flatten
      - {{linear: 3}}
    optimizer: {{name: sgd, lr: 0.1}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{loss: mse, inputs: [out, y]}}
  step: {{update: net, loss: loss}}
outputs: [loss, out]
"""


def train(backend: str, precision: str, device: str = "cpu") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return what five steps of float32 gave, and the weights at their end."""
    step, random = build_step(SPEC.format(precision), backend, dtype="float32", device=device), np.random.default_rng(2)
    found = []
    for _ in range(5):
        batch = {"x": random.normal(size=(8, 2, 6, 6)).astype("float32"), "y": np.ones((8, 3), "float32")}
        found.append(step.numpy(step(batch)["out"]))
    return np.stack(found), dict(weights(step))
