"""A value stays what it was: what a `parameter:` model gave does not change when an update writes the parameter."""

from __future__ import annotations

import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: temperature
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 3]}}
models:
  alpha: {parameter: {shape: [1], init: 0.5}, optimizer: {name: sgd, lr: 0.5}}
  net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1}}
ops:
  before: {forward: alpha, inputs: []}
  scaled: {call: mul, inputs: [x, before]}
  first: {loss: mse, inputs: [scaled, y]}
  step_alpha: {update: alpha, loss: first}
  guess: {forward: net, inputs: x, after: step_alpha}
  damped: {call: mul, inputs: [guess, before]}
  second: {loss: mse, inputs: [damped, y]}
  step_net: {update: net, loss: second}
  behind: {forward: alpha, inputs: [], after: step_alpha}
  moved: {call: sub, inputs: [behind, before]}
outputs: [before, behind, moved, second]
"""


@pytest.mark.parametrize("order", ["fewest", "listed", "latest", "memory"])
def test_a_parameter_read_before_its_update_keeps_its_value_after_it(order: str) -> None:
    step = build(compile_step(load(SPEC), order=order), device="cpu", dtype="float64")
    weight, bias = (p.detach().clone() for p in step.models["net"].parameters())
    torch.manual_seed(0)
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    found = step({"x": x, "y": y})
    alpha = torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((x * alpha - y).square().mean(), alpha)
    assert torch.allclose(found["before"], torch.tensor([0.5], dtype=torch.float64), rtol=0, atol=1e-15)
    assert torch.allclose(found["moved"], -0.5 * slope, rtol=0, atol=1e-14)
    second = ((x @ weight.T + bias) * 0.5 - y).square().mean()
    assert abs(float(found["second"] - second)) < 1e-14
    step({"x": x, "y": y})
    assert found["before"].item() == 0.5
