"""Lower precision on both backends: near to each other, and near to float32, as rounding lets them be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.scenario import BACKENDS
from tests.features.steps import build_step, set_weights, weights

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
ONE = """graphspec: 1
name: one
precision: {{compute: {0}, loss_scale: none}}
inputs: {{x: {{shape: [batch, 1]}}}}
models: {{net: {{layers: [{{linear: {{out: 1, bias: false}}}}], optimizer: {{name: sgd, lr: 0.5}}}}}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{call: mean, inputs: out}}
  slopes: {{gradient: loss, wrt: net}}
  step: {{update: net, gradients: slopes}}
outputs: [out]
"""
each_backend = pytest.mark.parametrize("backend", BACKENDS)
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def train(backend: str, precision: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return what five steps of float32 gave, and the weights at their end."""
    step, random = build_step(SPEC.format(precision), backend, dtype="float32"), np.random.default_rng(2)
    found = []
    for _ in range(5):
        batch = {"x": random.normal(size=(8, 2, 6, 6)).astype("float32"), "y": np.ones((8, 3), "float32")}
        found.append(step.numpy(step(batch)["out"]))
    return np.stack(found), dict(weights(step))


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("compute", EPSILON)
def test_both_backends_are_as_near_to_float32_and_to_each_other_as_a_few_roundings(compute: str) -> None:
    exact, _ = train("torch", "float32")
    low = {backend: train(backend, f"{{compute: {compute}, loss_scale: none}}")[0] for backend in BACKENDS}
    size = np.abs(exact).max()
    apart = [np.abs(value - exact).max() / size for value in low.values()]
    apart.append(np.abs(low["torch"] - low["tensorflow"]).max() / size)
    assert max(apart) < 8 * EPSILON[compute]
    assert min(apart[:2]) > EPSILON[compute] / 64  # it is not float32


@each_backend
@pytest.mark.parametrize(
    ("compute", "x", "expected"),
    [
        ("float16", 65504.0, 65504.0),
        ("float16", 70000.0, np.inf),
        ("float16", 1e-8, 0.0),
        ("float16", 1 + 2**-11, 1.0),
        ("bfloat16", 70000.0, 70144.0),
        ("bfloat16", 2.0**-30, 2.0**-30),
        ("bfloat16", 1 + 2**-8, 1.0),
        ("float32", 1 + 2**-11, 1 + 2**-11),
    ],
)
def test_operands_are_rounded_to_the_numbers_of_the_type(compute: str, x: float, expected: float, backend: str) -> None:
    step = build_step(ONE.format(compute), backend, dtype="float32")
    set_weights(step, {"net.0.weight": [[1.0]]})
    assert step.numpy(step({"x": np.array([[x]], "float32")})["out"]).tolist() == [[expected]]


@each_backend
@pytest.mark.parametrize("compute", EPSILON)
def test_an_update_too_little_for_the_type_moves_a_parameter(compute: str, backend: str) -> None:
    step = build_step(ONE.format(compute), backend, dtype="float32")
    set_weights(step, {"net.0.weight": [[1.0]]})
    for _ in range(4):
        step({"x": np.array([[2.0**-12]], "float32")})
    assert weights(step)["net.0.weight"].tolist() == [[1 - 4 * 2.0**-13]]
