"""Lower precision on both backends: near to each other, and near to float32, as rounding lets them be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.narrow import EPSILON, train
from tests.conformance.scenario import BACKENDS
from tests.features.steps import build_step, set_weights, weights

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
