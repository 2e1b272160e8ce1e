"""Gradients that are not finite, and numbers that are none: what the derivative of a function makes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.features.steps import build_step

BACKENDS = ("torch", "tensorflow")
SPEC = """
graphspec: 1
name: behind-zero
inputs: {{burst: {{shape: [batch]}}}}
models:
  v: {{parameter: {{shape: [2], init: {start}}}, optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  w: {{forward: v}}
  y: {call}
  all: {{call: mean, inputs: y}}
  how: {{call: mean, inputs: burst}}
  cost: {{call: mul, inputs: [all, how]}}
  step: {{update: v, loss: cost, on_overflow: own}}
"""
SLOPE = """
graphspec: 1
name: slope
inputs: {{x: {{shape: [batch]}}}}
ops:
  y: {call}
  all: {{call: sum, inputs: y}}
  slope: {{gradient: all, wrt: x}}
outputs: slope
"""
RELU = "{call: relu, inputs: w}"
HINGE = "{loss: hinge, inputs: [w, -1], reduction: none}"
ABS = "{call: abs, inputs: w}"
NORM = "{call: norm, inputs: w}"
HUBER = "{loss: huber, inputs: [w, 0], reduction: none}"


def fires(call: str, start: float, burst: float, backend: str) -> bool:
    """Return whether an update is applied whose loss is the mean of a function, times some number."""
    step = build_step(SPEC.format(call=call, start=start), backend)
    step({"burst": np.array([burst])})
    return "step" in step.report.fired


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("burst", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("call", "start", "expected"),
    [
        (RELU, -1.0, True),  # flat: nothing of what comes in goes on
        (RELU, 0.0, True),
        (RELU, 1.0, False),
        (HINGE, -2.0, True),
        (HINGE, 1.0, False),
        (ABS, 0.0, False),  # a kink: 0 is one of its slopes, and 0 times what is not finite is none
        (NORM, 0.0, False),
        (NORM, 1.0, False),
    ],
)
def test_what_is_not_finite_passes_where_a_function_is_not_flat(
    call: str, start: float, expected: bool, burst: float, backend: str
) -> None:
    assert fires(call, start, burst, backend) is expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("call", "at", "expected"), [(HUBER, math.inf, 1.0), (HUBER, -math.inf, -1.0), (HINGE, math.inf, 1.0)]
)
def test_the_slope_far_away_is_finite(call: str, at: float, expected: float, backend: str) -> None:
    assert slope(call, at, backend) == [expected, 0.0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", [ABS, "{loss: l1, inputs: [w, 0], reduction: none}", "{call: sign, inputs: w}"])
def test_nan_is_on_no_side_of_zero(call: str, backend: str) -> None:
    assert slope(call, math.nan, backend) == [0.0, 0.0]


def slope(call: str, at: float, backend: str) -> list[float]:
    """Return the derivatives of a function at a number and at its zero, where some have a kink and none a slope."""
    step = build_step(SLOPE.format(call=call.replace("w", "x")), backend)
    (found,) = step({"x": np.array([at, -1.0 if call == HINGE else 0.0])}).values()
    return np.asarray(found).tolist()
