"""The nine patterns as specs, each without `parallel`, and the batches that all of them are trained with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

STEPS = 10
ROWS = 6
"""The rows of a batch, the same number for each of two processes: what a pattern makes wrong is not the rows."""
RATE = 0.1
HEAD = """
graphspec: 1
name: pattern
inputs:
  x: {shape: [batch, 4]}
  y: {shape: [batch, 3]}
"""
NET = f"""
models: {{net: {{layers: [{{linear: 5}}, tanh, {{linear: 3}}], optimizer: {{name: sgd, lr: {RATE}}}}}}}
ops:
  out: {{forward: net, inputs: x}}
  fit: {{loss: mse, inputs: [out, y]}}
"""
ONE_BACKWARD = HEAD + NET + "  step: {update: net, loss: fit}\n"
TWO_FORWARDS = (
    HEAD
    + "  z: {shape: [batch, 4]}\n"
    + NET
    + """
  other: {forward: net, inputs: z}
  other_fit: {loss: mse, inputs: [other, y]}
  one: {gradient: fit, wrt: net}
  two: {gradient: other_fit, wrt: net}
  both: {call: add, inputs: [one, two]}
  step: {update: net, gradients: both}
"""
)
GRADIENTS = (
    HEAD
    + NET
    + """
  slopes: {gradient: fit, wrt: net}
  step: {update: net, gradients: slopes}
"""
)
TWO_BACKWARDS = (
    HEAD
    + NET
    + """
  far: {loss: l1, inputs: [out, y]}
  one: {gradient: fit, wrt: net}
  two: {gradient: far, wrt: net}
  both: {call: add, inputs: [one, two]}
  step: {update: net, gradients: both}
"""
)
COUNTS = (
    HEAD
    + "  label: {shape: [batch], dtype: int64}\n"
    + NET
    + """
  named: {loss: cross_entropy, inputs: [out, label], args: {ignore_index: -1}}
  loss: {call: add, inputs: [fit, named]}
  step: {update: net, loss: loss}
"""
)
WINDOW = HEAD + NET + "  step: {update: net, loss: fit, accumulate: 2}\n"
PENALTY = f"""
graphspec: 1
name: pattern
inputs: {{x: {{shape: [batch, 4]}}, z: {{shape: [batch, 4]}}, part: {{shape: [batch, 1]}}}}
models: {{critic: {{layers: [{{linear: 5}}, tanh, {{linear: 1}}], optimizer: {{name: sgd, lr: {RATE}}}}}}}
ops:
  mixed: {{expr: "part * x + (1 - part) * z"}}
  judged: {{forward: critic, inputs: mixed}}
  total: {{call: sum, inputs: judged}}
  slope: {{gradient: total, wrt: mixed}}
  length: {{call: norm, inputs: slope, args: {{axis: 1}}}}
  penalty: {{loss: mse, inputs: [length, 1.0], weight: 10.0}}
  real: {{forward: critic, inputs: x}}
  fake: {{forward: critic, inputs: z}}
  loss: {{expr: "mean(fake) - mean(real) + penalty"}}
  step: {{update: critic, loss: loss}}
"""
GAN = f"""
graphspec: 1
name: pattern
inputs: {{x: {{shape: [batch, 4]}}, z: {{shape: [batch, 4]}}}}
models:
  generator: {{layers: [{{linear: 5}}, tanh, {{linear: 4}}], optimizer: {{name: sgd, lr: {RATE}}}}}
  discriminator: {{layers: [{{linear: 5}}, tanh, {{linear: 1}}], optimizer: {{name: sgd, lr: {RATE}}}}}
ops:
  fake: {{forward: generator, inputs: z}}
  on_real: {{forward: discriminator, inputs: x}}
  on_fake: {{forward: discriminator, inputs: fake}}
  d_loss: {{expr: "bce_with_logits(on_real, 1.0) + bce_with_logits(on_fake, 0.0)"}}
  step_d: {{update: discriminator, loss: d_loss}}
  judged: {{forward: discriminator, inputs: fake, after: step_d}}
  g_loss: {{loss: bce_with_logits, inputs: [judged, 1.0]}}
  step_g: {{update: generator, loss: g_loss}}
"""
RARE = (
    HEAD
    + f"""
  rare: {{shape: [batch], dtype: int64}}
models:
  trunk: {{layers: [{{linear: 5}}, tanh, {{linear: 3}}], optimizer: {{name: sgd, lr: {RATE}}}}}
  head: {{layers: [{{linear: 3}}], optimizer: {{name: sgd, lr: {RATE}}}}}
ops:
  out: {{forward: trunk, inputs: x}}
  fit: {{loss: mse, inputs: [out, y]}}
  scores: {{forward: head, inputs: out}}
  named: {{loss: cross_entropy, inputs: [scores, rare], args: {{ignore_index: -1}}}}
  loss: {{call: add, inputs: [fit, named]}}
  step: {{update: [trunk, head], loss: loss}}
"""
)
LABELS = np.array([0, 1, 2, 1, -1, -1])
"""The first process has three rows with a label, the second one."""
RARE_LABELS = np.array([2, -1, 0, -1, -1, -1])
"""The first process has two rows with a label, the second none."""


def draw(number: int) -> Mapping[str, np.ndarray]:
    """Return everything that a pattern may read in a step, on all rows."""
    draws = np.random.default_rng(number)
    widths = {"x": 4, "y": 3, "z": 4}
    batch = {name: draws.normal(size=(ROWS, width)) for name, width in widths.items()}
    return MappingProxyType({**batch, "part": draws.uniform(size=(ROWS, 1)), "label": LABELS, "rare": RARE_LABELS})
