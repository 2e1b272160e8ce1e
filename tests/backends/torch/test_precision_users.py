"""Precision and all that a call can be: of a user's class, of its methods, with several results, taps, clones."""

from __future__ import annotations

import ast
import copy

import torch
from torch import nn

from compiler import compile_step
from graphspec import load
from runtime import Step, build

TEXT = """graphspec: 1
name: parts
precision: {compute: bfloat16, loss_scale: none}
inputs: {x: {shape: [batch, 4]}}
models:
  net: {class: 'tests.backends.torch.test_precision_users:Parts', optimizer: {name: sgd, lr: 0.5}}
  dropping: {layers: [{linear: 4}, {dropout: 0.5}, {linear: 4}], precision: float16, optimizer: {name: sgd, lr: 0.5}}
  plain: {layers: [{linear: 4}], precision: float32}
ops:
  parts: {forward: net, inputs: x, outputs: [mean, count, {hidden: {tap: first}}]}
  coded: {forward: net, inputs: mean, method: encode}
  kept: {forward: net, inputs: x, method: encode, snapshot: true, after: step}
  dropped: {forward: dropping, inputs: coded}
  still: {forward: dropping, inputs: coded, stop: true, train: false}
  flat: {forward: plain, inputs: dropped}
  loss: {call: mean, inputs: flat}
  slopes: {gradient: loss, wrt: [x]}
  steep: {call: norm, inputs: slopes}
  total: {call: add, inputs: [loss, steep]}
  step: {update: [net, dropping], loss: total}
outputs: [mean, count, hidden, coded, kept, dropped, still, flat, slopes, total]
"""


class Parts(nn.Module):
    """Gives several results by name, one of them no floating one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a result of matrices, and a count."""
        mean = self.second(torch.tanh(self.first(x)))
        return {"mean": mean, "count": (mean > 0).sum()}

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the first layer makes of x."""
        return self.first(x)


def made(dtype: str = "float32", text: str = TEXT) -> Step:
    """Return the step on the CPU."""
    return build(compile_step(load(text), "torch"), device="cpu", dtype=dtype, allow=("tests",))


def test_every_result_is_float32_and_what_is_none_stays() -> None:
    step = made()
    assert "checked by a real step on a copy at batch 2" in step.notes
    outputs = step({"x": torch.ones(3, 4)})
    assert outputs["count"].dtype == torch.int64
    assert {each.dtype for name, each in outputs.items() if name != "count"} == {torch.float32}


def test_results_taps_and_methods_are_those_of_autocast() -> None:
    step, x = made(), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    net, dropping = (copy.deepcopy(step.models[name]) for name in ("net", "dropping"))
    found = step({"x": x})
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = {"mean": net(x)["mean"], "hidden": net.first(x), "coded": net.encode(net(x)["mean"].float())}
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        expected["still"] = dropping.eval()(expected["coded"].float())
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected["kept"] = step.models["net"].encode(x)  # after the update
    assert all(torch.equal(found[name], value.float()) for name, value in expected.items())


def test_every_call_has_a_stretch_of_its_own() -> None:
    module = ast.parse(made().source)
    blocks = [each for each in ast.walk(module) if isinstance(each, ast.With)]
    stretches = [each for each in blocks if "autocast" in ast.unparse(each.items[0])]
    assert [len(each.body) for each in stretches] == [1] * 10  # five calls, in training and in evaluation
    assert all("widened(" in ast.unparse(each) and ".apply(" not in ast.unparse(each) for each in stretches)


def test_evaluation_computes_in_it_too() -> None:
    step, x = made(), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = step.models["net"].encode(x).float()
    assert torch.equal(step({"x": x}, mode="eval")["kept"], expected)
