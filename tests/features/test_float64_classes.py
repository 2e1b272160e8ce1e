"""A step in float64 whose class and parameter meet in a product: both are of the type of the step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step

SPEC = """
graphspec: 1
name: product
inputs: {x: {shape: [batch, 4], dtype: DTYPE}}
models:
  net:
    class: {torch: 'tests.features.factories:make_torch', tensorflow: 'tests.features.factories:make_keras'}
    args: {width: 4}
    optimizer: sgd
  mix: {parameter: {shape: [4, 4], init: ones}, optimizer: sgd}
ops:
  seen: {forward: net, inputs: x}
  m: {forward: mix}
  y: {call: matmul, inputs: [seen, m]}
  z: {call: matmul, inputs: [x, m]}
  fit: {call: mean, inputs: y}
  step: {update: [net, mix], loss: fit}
outputs: [seen, y, z]
"""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("declared", ["float32", "float64"])
def test_a_class_times_a_parameter(backend: str, dtype: str, declared: str) -> None:
    x = np.arange(8, dtype=dtype).reshape(2, 4)
    found = {
        name: np.asarray(value)
        for name, value in build_step(SPEC.replace("DTYPE", declared), backend, dtype=dtype)({"x": x}).items()
    }
    assert np.allclose(found["y"], found["seen"] @ np.ones((4, 4)), rtol=1e-6)
    assert np.array_equal(found["z"], x @ np.ones((4, 4)))
    assert found["y"].dtype == dtype
