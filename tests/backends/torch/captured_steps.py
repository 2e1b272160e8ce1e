"""Steps in both forms, eager and captured, and how they are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from runtime.backends.torch.tensors import sample_inputs
from tests.backends.torch.recorder import HostRecorder

EXAMPLES = Path(__file__).parents[3] / "examples"
CLOSE = 1e-9
"""Of float64 steps: the orders of some sums differ."""


class Compiler:
    """A compiler that runs graphs operation by operation, and counts them."""

    recorder: HostRecorder | None = None  # what records the graphs

    def __init__(self, run: Callable[[Any, Any], Any]) -> None:
        self.run, self.graphs = run, 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        made = self.run(graph, inputs)  # autograd may find a number to be constant, and have Dynamo begin again
        self.graphs += 1
        return made


def pair(plan, jit="step", **options) -> tuple[Step, Step]:
    """Return the eager step of a plan and the captured one, with the same weights."""
    eager, captured = (build(plan, device="cpu", dtype="float64", jit=each, **options) for each in (None, jit))
    return eager, captured


def draw(step: Step, count: int, rows: int = 4):
    """Yield batches of numbers between 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    inputs = sample_inputs(step.plan.program, {"batch": rows}, torch.device("cpu"), torch.float64) or {}
    for _ in range(count):
        yield {
            name: torch.rand(each.shape, generator=generator, dtype=each.dtype) if each.is_floating_point() else each
            for name, each in inputs.items()
        }


def assert_same(eager: Step, captured: Step, batches, mode: str = "train") -> None:
    """Take steps of both with the same batches: outputs are equal, and so is all state at their end."""
    for batch in batches:
        for one, other in zip(eager(batch, mode).items(), captured(batch, mode).items(), strict=True):
            assert one[0] == other[0]
            torch.testing.assert_close(one[1], other[1], rtol=CLOSE, atol=CLOSE)
    assert_alike(eager, captured)


def assert_alike(eager: Step, captured: Step) -> None:
    """Compare all state."""
    ours, theirs = captured.state(), eager.state()
    assert ours.counters == theirs.counters
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in theirs.arrays.items():
        torch.testing.assert_close(*map(torch.from_numpy, (ours.arrays[name], array)), rtol=CLOSE, atol=CLOSE)


def plan_of(name: str):
    return compile_step(load(next(EXAMPLES.glob(f"*/{name}.yaml"))))


def spec_of(rule, precision=None, further=None, *, models=None, own=None, **update):
    """Return the plan of a step of a small net; ``own`` is more of the net, ``further`` are ops, ``models`` models."""
    net = {"layers": [{"linear": 5}, "relu", {"linear": 3}], "optimizer": rule, **(own or {})}
    ops = {
        "out": {"forward": "net", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": "net", "loss": "loss", **update},
    }
    inputs = {"x": {"shape": ["batch", 4]}, "y": {"shape": ["batch", 3]}}
    spec = {
        "graphspec": 1,
        "name": "small",
        "inputs": inputs,
        "outputs": ["loss"],
        "models": {"net": net, **(models or {})},
    }
    spec |= {"precision": precision} if precision else {}
    return compile_step(load(json.dumps({**spec, "ops": {**ops, **(further or {})}})))
