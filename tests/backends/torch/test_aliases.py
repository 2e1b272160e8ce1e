"""A value outlives the next update of the model it came from, so a model must not return its own tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build

SPEC = """
graphspec: 1
name: own-tensor
inputs: {x: {shape: [batch, 3]}}
models:
  net: {class: "zoo:Net", optimizer: sgd}
ops:
  y: {forward: net, inputs: x, outputs: [y, center]}
  loss: {loss: mse, inputs: [y, center]}
  step: {update: net, loss: loss}
outputs: [loss, center]
"""


class Net(nn.Module):
    """Returns its result, and its center: itself, a view of it, or a copy."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.center = nn.Parameter(torch.ones(1, 3))
        self.way = way

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result and the center."""
        given = {"itself": self.center, "view": self.center[:], "copy": self.center.clone()}[self.way]
        return self.body(x), given.expand(x.shape[0], 3) if self.way == "copy" else given


@pytest.mark.parametrize("way", ["itself", "view"])
def test_a_model_that_returns_its_own_parameter_is_refused(way):
    plan = compile_step(load(SPEC.replace("[y, center]}\n  step", "[y, 0.0]}\n  step")))
    with pytest.raises(SpecError, match=r"GS260.*model 'net' returns its own 'center' as 'center'"):
        build(plan, device="cpu", models={"net": Net(way)})


def test_a_copy_keeps_the_value_of_the_start_of_the_step():
    step = build(compile_step(load(SPEC)), device="cpu", models={"net": Net("copy")})
    found = step({"x": torch.ones(2, 3)})
    assert found["center"].tolist() == [[1.0] * 3] * 2
    assert not torch.equal(step.models["net"].center, torch.ones(1, 3))
