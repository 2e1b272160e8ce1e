"""Outputs that are views of what carries a graph carry none themselves."""

from __future__ import annotations

import torch

from compiler import compile_step
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: views
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: fit}
  turned: {call: permute, inputs: out, args: {dims: [1, 0]}}
  flat: {call: reshape, inputs: turned, args: {shape: [-1]}}
  square: {call: reshape, inputs: out, args: {shape: [batch, 2, 2]}}
  head: {call: slice, inputs: out, args: {stop: 2}}
  halves: {call: split, inputs: out, outputs: [left, right], args: {sections: 2}}
outputs: [out, turned, flat, square, head, left, right]
"""


def test_views_come_without_a_graph() -> None:
    for value in build(compile_step(load(SPEC), "torch"), device="cpu")({"x": torch.ones(3, 4)}).values():
        assert isinstance(value, torch.Tensor)
        assert not value.requires_grad
