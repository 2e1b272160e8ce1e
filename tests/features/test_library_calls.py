"""Calls that order, move, add up, multiply or resample: in a step, in micro-batches, in expressions and from Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import stepgraph as sg
from graphspec import SpecError, dump, load
from graphspec.library import sort, topk
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: called
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 4]}, table: {shape: [4, 2]}}
models:
  net: {layers: [{linear: {out: 4, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
ops:
  seen: {forward: net, inputs: x}
  CALL
  squared: {call: square, inputs: found}
  fit: {call: mean, inputs: squared}
  step: {update: net, loss: fit}
outputs: [found, fit]
"""
RANDOM = np.random.default_rng(11)
WEIGHT, TABLE = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 2))
X, Y = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(5, 4))

Reference = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
CALLS: dict[str, tuple[str, Reference]] = {
    "cumsum": ("{call: cumsum, inputs: seen}", lambda x, y, t: x.cumsum(1)),
    "roll": ("{call: roll, inputs: seen, args: {shifts: -1}}", lambda x, y, t: x.roll(-1, 1)),
    "pad": ("{call: pad, inputs: seen, args: {pad: [1, 2], value: 0.5}}", lambda x, y, t: F.pad(x, (1, 2), value=0.5)),
    "pad-mirror": (
        "{call: pad, inputs: seen, args: {pad: [2, 1], method: reflect}}",
        lambda x, y, t: F.pad(x, (2, 1), "reflect"),
    ),
    "split-into-one": ("{call: split, inputs: seen, args: {sections: 1}, outputs: [found]}", lambda x, y, t: x),
    "norm": (
        "{call: norm, inputs: seen, args: {axis: 1, keepdims: true}}",
        lambda x, y, t: x.norm(dim=1, keepdim=True),
    ),
    "einsum": (
        '{call: einsum, inputs: [seen, table], args: {equation: "bi,ij->jb"}}',
        lambda x, y, t: torch.einsum("bi,ij->jb", x, t),
    ),
    "einsum-alike": (
        '{call: einsum, inputs: [seen, y], args: {equation: "bi,bi->b"}}',
        lambda x, y, t: (x * y).sum(1),
    ),
    "product-of-one-hot": (  # which is of the type of the step, in float64 as well
        "{expr: 'one_hot(argmax(y), classes=4) @ table + seen[:, :2]'}",
        lambda x, y, t: t[y.argmax(1)] + x[:, :2],
    ),
    "einsum-of-one-hot": (
        "{expr: 'einsum(one_hot(argmax(y), classes=4), seen, equation=\"bk,bi->bki\")'}",
        lambda x, y, t: F.one_hot(y.argmax(1), 4).double()[:, :, None] * x[:, None],
    ),
    "einsum-summed": (
        '{call: einsum, inputs: [seen, y], args: {equation: "bi,bj->ij"}}',
        lambda x, y, t: x.T @ y,
    ),
    "sum-of-running": (
        "{expr: 'sum(cumsum(seen, axis=1), axis=0)'}",
        lambda x, y, t: x.cumsum(1).sum(0),
    ),
    "running-of-sum": (
        "{expr: 'cumsum(mean(seen, axis=0))'}",
        lambda x, y, t: x.mean(0).cumsum(0),
    ),
    "product-of-mean": (
        "{expr: 'outer(mean(seen, axis=0), table[:, 0])'}",
        lambda x, y, t: torch.outer(x.mean(0), t[:, 0]),
    ),
    "outer": ("{expr: 'outer(seen[:, 0], table[:, 0])'}", lambda x, y, t: torch.outer(x[:, 0], t[:, 0])),
    "interpolate": (
        "{expr: 'interpolate(reshape(seen, shape=[batch, 1, 2, 2]), size=[3, 4], mode=bilinear)'}",
        lambda x, y, t: F.interpolate(x.reshape(-1, 1, 2, 2), size=(3, 4), mode="bilinear"),
    ),
    "sort": ("{call: sort, inputs: seen, outputs: [found, places]}", lambda x, y, t: x.sort(1).values),
    "topk": (
        "{call: topk, inputs: seen, outputs: [found, places], args: {k: 2, largest: false}}",
        lambda x, y, t: x.topk(2, 1, largest=False).values,
    ),
}
LINEAR_IN_THE_BATCH = ("einsum-summed", "sum-of-running", "running-of-sum", "product-of-mean")
"""Those that leave no rows: the mean of their square is no mean over samples, and so a micro-batch is told of it."""


def write(call: str) -> str:
    """Return the spec with a call whose result, or first result, is `found`."""
    return SPEC.replace("CALL", f"{'made' if 'outputs' in call else 'found'}: {call}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_a_step_through_a_call_is_that_of_pytorch_also_in_micro_batches(name: str, parts: int, backend: str) -> None:
    call, reference = CALLS[name]
    text = write(call)
    if name in LINEAR_IN_THE_BATCH:  # linear to the end: then the whole batch and its parts must agree
        text = text.replace("squared: {call: square, inputs: found}", "squared: {call: mul, inputs: [found, 2.0]}")
    step = build_step(text, backend, [f"micro_batches={parts}"])
    told = [each.message for each in step.plan.warnings if each.code == "W-COUPLED"]
    assert told == [], "what couples samples has other numbers in micro-batches: see tests/features/test_batch_axes.py"
    set_weights(step, {"net.0.weight": WEIGHT})
    found = step({"x": X, "y": Y, "table": TABLE})

    weight = torch.tensor(WEIGHT, requires_grad=True)
    expected = reference(torch.tensor(X) @ weight.T, torch.tensor(Y), torch.tensor(TABLE))
    fit = (2.0 * expected if name in LINEAR_IN_THE_BATCH else expected.square()).mean()
    (slope,) = torch.autograd.grad(fit, weight)
    assert np.allclose(step.numpy(found["found"]), expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert np.isclose(step.numpy(found["fit"]), fit.item(), rtol=1e-10)
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.5 * slope.numpy(), rtol=1e-10, atol=1e-12)


def test_python_code_gets_both_results_of_a_sort() -> None:
    g = sg.Graph("sorted")
    x = g.input("x", ["batch", 3])
    values, places = sort(x, descending=True)
    best, _ = topk(x, k=2, axis=-1)
    step = build_step(dump(g.build(outputs=[values, places, best])), "torch")
    values, places, best = (step.numpy(each) for each in step({"x": X}).values())
    assert np.array_equal(places, np.argsort(-X, axis=1))
    assert np.array_equal(best, values[:, :2])


@pytest.mark.parametrize(
    ("call", "code", "wrong"),
    [
        ("{call: sort, inputs: seen}", "GS116", "2 results"),
        ("{call: topk, inputs: seen, outputs: [found, places]}", "GS114", "needs `k`"),
        ('{call: einsum, inputs: seen, args: {equation: "ii->i"}}', "GS113", "an equation"),
        ('{call: einsum, inputs: seen, args: {equation: "bi"}}', "GS113", "an equation"),
        ('{call: einsum, inputs: seen, args: {equation: "bi->c"}}', "GS113", "an equation"),
        ("{call: pad, inputs: seen, args: {pad: [-1, 0]}}", "GS113", "found [-1, 0]"),
    ],
)
def test_what_is_no_call_is_told(call: str, code: str, wrong: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(write(call))
    (found,) = (each for each in caught.value.diagnostics if each.code == code)
    assert wrong in found.message
    assert found.help
