"""Nothing is modified in place while a gradient needs it: if no order is right, the compiler says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A11")

CIRCLE = """
graphspec: 1
name: circle
inputs: {x: {shape: [batch, 4]}}
models:
  g: {layers: [{linear: 4}], optimizer: {name: sgd, lr: 0.01}}
  d: {layers: [{linear: 4}, tanh, {linear: 4}], optimizer: {name: sgd, lr: 0.01}}
ops:
  fake: {forward: g, inputs: x}
  before: {forward: d, inputs: fake, after: []}
  d_loss: {loss: mse, inputs: [before, 0.0]}
  step_d: {update: d, loss: d_loss}
  behind: {forward: d, inputs: x, after: step_d}
  g_loss: {loss: mse, inputs: [before, behind]}
  step_g: {update: g, loss: g_loss}
"""


def test_where_no_order_is_right_both_versions_are_named() -> None:
    with pytest.raises(SpecError, match=r"(?s)E-TWO-VERSIONS.*d\.params@0"):
        compile_step(load(CIRCLE), "torch")


def test_a_clone_makes_it_possible_on_pytorch_and_a_tape_needs_none(backend: str) -> None:
    settings = {"torch": ("ops.before.snapshot=true",), "tensorflow": ()}[backend]
    step = build_step(CIRCLE, backend, settings)
    before = {name: torch.tensor(value, requires_grad=True) for name, value in weights(step).items()}
    x = np.arange(8.0).reshape(2, 4) / 8
    step({"x": x})
    expected = by_hand(before, torch.tensor(x))
    for name, value in weights(step).items():
        assert np.allclose(value, expected[name], rtol=0, atol=1e-14), name


def by_hand(w: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the weights after a step, by functions that change nothing: both uses of d have weights of their own."""

    def d(value: torch.Tensor, at: dict[str, torch.Tensor]) -> torch.Tensor:
        inner = torch.tanh(F.linear(value, at["d.0.weight"], at["d.0.bias"]))
        return F.linear(inner, at["d.2.weight"], at["d.2.bias"])

    def stepped(loss: torch.Tensor, model: str) -> dict[str, torch.Tensor]:
        names = [name for name in w if name.startswith(model)]
        slopes = torch.autograd.grad(loss, [w[name] for name in names], retain_graph=True)
        return {name: w[name] - 0.01 * slope for name, slope in zip(names, slopes, strict=True)}

    before = d(F.linear(x, w["g.0.weight"], w["g.0.bias"]), w)
    later = stepped((before**2).mean(), "d.")
    made = stepped(((before - d(x, later)) ** 2).mean(), "g.")
    return {name: value.detach().numpy() for name, value in {**later, **made}.items()}
