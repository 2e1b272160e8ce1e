"""Where the backends differ: a gradient that is not finite behind a derivative of zero."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step

SPEC = """
graphspec: 1
name: behind-zero
inputs: {burst: {shape: [batch]}}
models:
  v: {parameter: {shape: [2], init: -1.0}, optimizer: {name: sgd, lr: 0.1}}
ops:
  w: {forward: v}
  y: {call: relu, inputs: w}
  all: {call: mean, inputs: y}
  how: {call: mean, inputs: burst}
  cost: {call: mul, inputs: [all, how]}
  step: {update: v, loss: cost, on_overflow: own}
"""


@pytest.mark.parametrize(("backend", "fired"), [("torch", ("step",)), ("tensorflow", ())])
def test_infinity_behind_the_zero_of_relu_is_zero_on_pytorch_alone(backend: str, fired: tuple[str, ...]) -> None:
    step = build_step(SPEC, backend)
    step({"burst": np.array([np.inf])})
    assert step.report.fired == fired
