"""Models that were given to torch.compile: they are compiled when the step runs them, and give the same numbers."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn
from torch._dynamo.utils import counters

from compiler import compile_step
from graphspec.loading import load
from runtime import build
from runtime.backends.torch.compat import DispatchMode

SPEC = """
graphspec: 1
name: compiled
inputs: {x: {shape: [batch, 3]}}
models: {net: {class: "tests.backends.torch.users:Linear", optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: loss}
"""


class Fast(nn.Module):
    """A model that compiles a part of itself with a backend that counts its graphs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        self.graphs = []
        self.fast = [torch.compile(self.net, backend=self.note)]

    def note(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    def forward(self, x):
        return self.fast[0](x)


def test_building_a_step_does_not_keep_a_model_from_being_compiled():
    torch.compiler.reset()
    model, plain = Fast(), Fast()
    batch = {"x": torch.arange(6.0).reshape(2, 3)}
    step = build(compile_step(load(SPEC)), models={"net": model})
    step(batch)
    assert len(model.graphs) == 1
    loss = nn.functional.mse_loss(plain.net(batch["x"]), batch["x"])
    gradients = torch.autograd.grad(loss, list(plain.net.parameters()))
    expected = [p - 0.1 * g for p, g in zip(plain.net.parameters(), gradients, strict=True)]
    torch.testing.assert_close(list(model.net.parameters()), [nn.Parameter(each) for each in expected])


class Operations(DispatchMode):
    """A mode that counts operations."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_what_watches_a_compiled_function_is_not_compiled_itself():
    torch.compiler.reset()
    counters.clear()
    shift, x = torch.compile(lambda x: x * 2 + 1, backend="eager"), torch.ones(3)
    with Operations() as operations:
        found = shift(x)
    assert found.tolist() == [3, 3, 3]
    assert operations.count == 2
    assert not counters["frames"]


PROGRAM = """
import sys
import torch
from compiler import compile_step
from graphspec import load
from runtime import build
from runtime.backends.torch.compat import DispatchMode
step = build(compile_step(load("examples/autoencoder/autoencoder.yaml")), device="cpu")
step({"image": torch.zeros(4, 1, 8, 8)})
print(*sorted({"torch._dynamo", "sympy"} & {*sys.modules}))
"""


def test_where_nothing_is_compiled_the_compiler_is_not_imported():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
