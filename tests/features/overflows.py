"""A parameter whose gradient is an input: what an optimizer is given is what a test says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime import Step
from tests.features.steps import build_step

SPEC = """
graphspec: 1
name: given
inputs: {slope: {shape: [2]}}
models:
  v: {parameter: {shape: [2], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  value: {forward: v}
  product: {call: mul, inputs: [value, slope]}
  cost: {call: sum, inputs: product}
  step: {update: v, loss: cost}
precision: {loss_scale: dynamic}
outputs: [cost]
"""
INF = float("inf")


def made(backend: str, settings: Sequence[str] = (), text: str = SPEC) -> Step:
    """Return a step of the spec in float32."""
    return build_step(text, backend, settings, dtype="float32")


def give(step: Step, slope: float | Sequence[float], name: str = "slope") -> None:
    """Take one step in which the gradient is what is given."""
    step({name: np.broadcast_to(np.asarray(slope, np.float32), (2,)).copy()})
