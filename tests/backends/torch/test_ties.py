"""Models that share parameters, as the spec says they do: every storage has one gradient and takes one step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compiler import compile_step
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  a: {class: "shop:Coder", optimizer: {name: sgd, lr: 0.1}}
  b: {class: "shop:Reader", optimizer: {name: sgd, lr: 0.1}, traits: {ties: [a.weight]}}
ops:
  code: {forward: a, inputs: x}
  again: {forward: b, inputs: code}
  error: {loss: mse, inputs: [again, y]}
  UPDATE
outputs: [error]
"""
JOINT = "step: {update: [a, b], loss: error, optimizer: {name: sgd, lr: 0.1}}"
OF_ONE = "step: {update: a, loss: error}"
OF_A_SET = "both: {gradient: error, wrt: [a, b]}\n  step: {update: b, gradients: both}"
CLIPPED = "step: {update: [a, b], loss: error, clip: {norm: 0.01, eps: 1e-6}, optimizer: {name: adam, lr: 0.1}}"


def tied_models():
    torch.manual_seed(3)
    a, b = (nn.Linear(4, 4).double() for _ in range(2))
    b.weight = a.weight
    return {"a": a, "b": b}


def trained(update):
    """Return the weights after three steps of ours."""
    models = tied_models()
    plan = compile_step(load(SPEC.replace("UPDATE", update)))
    step = build(plan, models=models, allow=["shop"], dtype="float64", device="cpu")
    for x, y in batches():
        step({"x": x, "y": y})
    return [models["a"].weight, models["a"].bias, models["b"].bias]


def batches():
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(2, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3)]


def trained_by_hand(choose, make, norm=None):
    """Return the weights after three steps of a loop; ``choose``: which of weight and biases are trained."""
    models = tied_models()
    every = [models["a"].weight, models["a"].bias, models["b"].bias]
    optimizer = make(choose(every))
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(models["b"](models["a"](x)), y).backward()
        if norm is not None:
            nn.utils.clip_grad_norm_(choose(every), norm)
        optimizer.step()
    return every


def sgd(weights):
    return torch.optim.SGD(weights, lr=0.1)


LOOPS = {
    JOINT: lambda: trained_by_hand(lambda every: every, sgd),
    OF_ONE: lambda: trained_by_hand(lambda every: every[:2], sgd),
    OF_A_SET: lambda: trained_by_hand(lambda every: every[::2], sgd),
    CLIPPED: lambda: trained_by_hand(lambda every: every, lambda weights: torch.optim.Adam(weights, lr=0.1), 0.01),
}


@pytest.mark.parametrize("update", LOOPS, ids=["joint", "of one", "of a set", "clipped"])
def test_a_shared_weight_takes_the_one_step_of_a_loop_by_hand(update):
    for ours, theirs in zip(trained(update), LOOPS[update](), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


def test_models_that_share_a_weight_go_on_from_a_checkpoint_bit_for_bit(tmp_path):
    def make():
        plan = compile_step(load(SPEC.replace("UPDATE", CLIPPED)))
        return build(plan, models=tied_models(), allow=["shop"], dtype="float64", device="cpu")

    whole, first, second = make(), make(), make()
    given = [{"x": x, "y": y} for x, y in batches()]
    for batch in given:
        whole(batch)
    first(given[0])
    first.save(tmp_path / "kept")
    second.load(tmp_path / "kept")
    for batch in given[1:]:
        second(batch)
    assert [name for name, value in whole.tensors().items() if not value.equal(second.tensors()[name])] == []
    assert second.models["a"].weight is second.models["b"].weight
