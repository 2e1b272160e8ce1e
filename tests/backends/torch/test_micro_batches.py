"""Micro-batches on PyTorch: what is held for gradients at a time, and what statistics and draws see."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from compiler import Plan, compile_step
from graphspec import load
from runtime import build

DEEP = """
graphspec: 1
name: deep
inputs: {x: {shape: [batch, 16]}}
models:
  net: {layers: [{linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}, tanh, {linear: 16}], optimizer: sgd}
  head: {layers: [{linear: 16}, tanh, {linear: 16}], optimizer: sgd}
ops:
  out: {forward: net, inputs: x}
  more: {forward: head, inputs: out}
  loss: {loss: mse, inputs: [out, x]}
  other: {loss: l1, inputs: [more, x]}
  step: {update: net, loss: loss}
  step_head: {update: head, loss: other}
"""
NORM = """
graphspec: 1
name: norm
micro_batches: 2
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: [batch_norm, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: loss}
"""


class Held:
    """The bytes that graphs hold at a time, and the most there were; tensors of the size of weights do not count."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: torch.Tensor) -> Packed:
        """Count a tensor until the graph lets go of it."""
        return Packed(self, tensor)


class Packed:
    """A tensor that a graph holds."""

    def __init__(self, held: Held, tensor: torch.Tensor) -> None:
        self.held, self.tensor = held, tensor
        self.size = 0 if isinstance(tensor, nn.Parameter) or tensor._base is not None else tensor.numel()
        held.now += self.size
        held.most = max(held.most, held.now)

    def __del__(self) -> None:
        self.held.now -= self.size


def plan(text: str, settings: Sequence[str] = ()) -> Plan:
    """Return the plan of a spec."""
    return compile_step(load(text, [*settings, "rng=portable"]))


def measure(count: int) -> int:
    """Return the most numbers that graphs held at a time in a step of 64 rows."""
    step, held = build(plan(DEEP, [f"micro_batches={count}"]), device="cpu"), Held()
    with torch.autograd.graph.saved_tensors_hooks(held.pack, lambda packed: packed.tensor):
        step({"x": torch.ones(64, 16)})
    return held.most


def test_one_micro_batch_is_held_at_a_time() -> None:
    whole = measure(1)
    assert measure(4) <= whole / 4 * 1.01
    assert measure(16) <= whole / 16 * 1.01


def test_every_gradient_of_a_micro_batch_stands_before_the_next_forward() -> None:
    lines = [line.split() for line in str(plan(DEEP, ["micro_batches=3"])).splitlines()]
    parts = [int(line[2].split("#")[1]) for line in lines if line[1:2] in (["forward"], ["gradient"])]
    assert parts == sorted(parts)


def test_statistics_are_written_once_for_every_part_in_order() -> None:
    step, x = build(plan(NORM), device="cpu", dtype="float64"), torch.arange(15.0, dtype=torch.float64).reshape(5, 3)
    norm = nn.BatchNorm1d(3, dtype=torch.float64)
    norm(x[:3]), norm(x[3:])
    step({"x": x})
    assert torch.equal(step.models["net"][0].running_mean, norm.running_mean)
    assert torch.equal(step.models["net"][0].running_var, norm.running_var)


def test_layers_that_couple_samples_are_told() -> None:
    assert [each.code for each in plan(NORM).warnings] == ["W-COUPLED"]


@pytest.mark.parametrize("count", [1, 4])
def test_code_says_which_micro_batch_it_is_about(count: int) -> None:
    source = build(plan(DEEP, [f"micro_batches={count}"]), device="cpu").source
    assert re.findall(r"micro-batch (\d) of 4", source) == (list("1234") if count == 4 else [])
