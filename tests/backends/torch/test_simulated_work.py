"""What `plan --simulate` counts, against PyTorch: its own counter of operations, and the slots of its optimizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from compiler import compile_step
from compiler.plan.simulate.timeline import find_timeline
from compiler.plan.simulate.work import Work, count_slots
from graphspec import load
from graphspec.declare.optimizers import OPTIMIZERS
from runtime import build

EXAMPLES = Path(__file__).parents[3] / "examples"
ROWS = 6
LAYERS = """
graphspec: 1
name: layers
inputs: {x: {shape: [batch, SHAPE]}, y: {shape: [batch, 3]}}
models:
  net: {layers: [LAYERS], optimizer: sgd}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
NETS = {
    "linear": ("8", "{linear: 16}, tanh, {linear: 32}, relu, {linear: 3}"),
    "conv2d": (
        "4, 9, 9",
        "{conv2d: {out: 8, kernel: 3, stride: 2}}, relu, {conv2d: {out: 6, kernel: 2}}, flatten, {linear: 3}",
    ),
    "conv_transpose2d": (
        "4, 3, 3",
        "{conv2d: {out: 6, kernel: 1}}, {conv_transpose2d: {out: 5, kernel: 2, stride: 2}}, flatten, {linear: 3}",
    ),
    "conv1d": (
        "4, 12",
        "{conv1d: {out: 6, kernel: 3}}, {conv1d: {out: 7, kernel: 5, dilation: 2}}, flatten, {linear: 3}",
    ),
    "residual": ("8", "{linear: 8}, {residual: [{linear: 20}, relu, {linear: 8}]}, {linear: 3}"),
    "attention": ("7, 8", "{linear: 8}, {multi_head_attention: {heads: 2}}, flatten, {linear: 3}"),
}


def count_products(spec) -> float:
    """Return the operations of the products in a step: every product is two of each pair, at least."""
    plan = compile_step(spec)
    function = plan.program.mode("train").functions[0]
    lines = [
        each
        for each in find_timeline(plan, function).lines
        if each.label.startswith(("forward", "joint forward", "gradient"))
    ]
    products = Work(tuple(term for line in lines for term in line.work.terms if term[0] >= 4))
    return products.count({"batch": ROWS})


class Counter(TorchDispatchMode):
    """Adds up PyTorch's formulas of products; its own `FlopCounterMode` fails where gradients keep their graph."""

    total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        count = flop_registry.get(function._overloadpacket)
        self.total += 0 if count is None else count(*args, **(kwargs or {}), out_val=result)
        return result


def count_by_torch(spec, batch) -> int:
    step = build(compile_step(spec), device="cpu")
    with Counter() as counter:
        step(batch)
    return counter.total


@pytest.mark.parametrize("name", NETS)
def test_products_of_layers_and_of_their_gradients_are_those_that_torch_counts(name):
    shape, layers = NETS[name]
    spec = load(LAYERS.replace("SHAPE", shape).replace("LAYERS", layers))
    sizes = [int(each) for each in shape.split(",")]
    batch = {"x": np.ones((ROWS, *sizes), np.float32), "y": np.ones((ROWS, 3), np.float32)}
    assert count_products(spec) == count_by_torch(spec, batch)


def test_products_of_gradients_through_several_models_are_those_that_torch_counts():
    spec = load(EXAMPLES / "simultaneous-gan" / "simultaneous-gan.yaml")
    assert count_products(spec) == count_by_torch(spec, {"image": np.zeros((ROWS, 1, 8, 8), np.float32)})


def test_a_gradient_of_a_gradient_takes_about_twice_the_first():
    spec = load(EXAMPLES / "wgan-gp" / "wgan-gp.yaml")
    counted = count_by_torch(spec, {"image": np.zeros((ROWS, 1, 8, 8), np.float32)})
    assert count_products(spec) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_slots_are_those_of_the_optimizers(rule):
    layers = "{linear: {out: 16, bias: false}}, {linear: {out: 3, bias: false}}"
    text = LAYERS.replace("SHAPE", "8").replace("LAYERS", layers).replace("optimizer: sgd", f"optimizer: {rule}")
    plan = compile_step(load(text))
    step = build(plan, device="cpu")
    step({"x": np.ones((2, 8), np.float32), "y": np.ones((2, 3), np.float32)})
    (optimizer,) = plan.program.optimizers
    counted = sum(count_slots(optimizer, each.shape) for each in plan.program.model("net").parameters)
    slots = (value for group in step.optimizers["net"].slots.values() for value in group.values())
    assert counted == sum(each.size for each in map(np.asarray, slots) if each.ndim)
