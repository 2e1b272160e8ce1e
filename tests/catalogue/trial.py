"""A spec of the catalogue trained as it is, the same steps by a reference, and by a loop with the mistake in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build
from tests.catalogue.mathematics import Weights, World

SPECS = Path(__file__).parent / "specs"
STEPS = 6
ROWS = 6
BURST = 2
BACKENDS = ("torch", "tensorflow")
each_backend = pytest.mark.parametrize("backend", BACKENDS)
SAME = 1e-12
WRONG = 1e-6

Batch = Mapping[str, torch.Tensor]


class Loop(ABC):
    """A training step written by hand, with torch.optim and ``.backward()``, that has one mistake in it."""

    def __init__(self, nets: Mapping[str, nn.Module]) -> None:
        self.nets = nets
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the optimizers."""

    @abstractmethod
    def step(self, **batch: torch.Tensor) -> None:
        """Take one step."""

    def sgd(self, *names: str, **options: object) -> torch.optim.Optimizer:
        """Return the optimizer of the specs over some of the nets."""
        parameters = [each for name in names for each in self.nets[name].parameters()]
        return torch.optim.SGD(parameters, **{"lr": 0.1, **options})


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """What six steps of a spec did: its plan, where they began, where they ended, and what they returned."""

    plan: Plan
    start: World
    end: World
    outputs: tuple[Mapping[str, torch.Tensor], ...]
    burst: str = ""
    """The input of which one number is infinite in the third step."""

    def error_of(self, reference: Callable[..., World]) -> float:
        """Return the largest difference from a reference that took the same steps."""
        world = self.start
        for batch in batches(self.plan, self.burst):
            world = reference(world, **batch)
        return distance(self.end, world)

    def error_of_loop(self, loop: type[Loop]) -> float:
        """Return the largest difference from a loop that took the same steps, in weights or buffers."""
        made = loop({name: make_net(weights) for name, weights in self.start.items()})
        for batch in batches(self.plan, self.burst):
            made.step(**batch)
        return distance(self.end, {name: net.state_dict() for name, net in made.nets.items()})


def plan_of(name: str, *overrides: str, order: str = "fewest", backend: str = "torch") -> Plan:
    """Compile a spec of the catalogue."""
    return compile_step(load(SPECS / f"{name}.yaml", list(overrides)), backend, order)


def train(name: str, *overrides: str, order: str = "fewest", backend: str = "torch", burst: str = "") -> Trial:
    """Take six steps of a spec in float64; one number of an input may be infinite in the third."""
    plan = plan_of(name, *overrides, order=order, backend=backend)
    step = build(plan, device="cpu", dtype="float64", allow=["tests"])
    start = world_of(arrays(step, step.tensors()))
    given = ({key: each.numpy() for key, each in batch.items()} for batch in batches(plan, burst))
    outputs = tuple(arrays(step, step(batch)) for batch in given)
    return Trial(plan=step.plan, start=start, end=world_of(arrays(step, step.tensors())), outputs=outputs, burst=burst)


def arrays(step: Step, found: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Return what is a tensor of a step's framework as PyTorch's."""
    return {name: torch.from_numpy(np.asarray(step.numpy(value))) for name, value in found.items()}


def world_of(tensors: Mapping[str, torch.Tensor]) -> World:
    """Return copies of all weights and buffers, by model."""
    world: dict[str, dict[str, torch.Tensor]] = {}
    for path, tensor in tensors.items():
        if path.startswith("models."):
            _, model, name = path.split(".", 2)
            world.setdefault(model, {})[name] = tensor.detach().clone()
    return world


def batches(plan: Plan, burst: str = "") -> Iterator[Batch]:
    """Yield the batches of a spec: normal numbers, the same every time, but for one that may be infinite."""
    generator = torch.Generator().manual_seed(11)
    for number in range(STEPS):
        shapes = {name: [ROWS if size == "batch" else size for size in each.shape] for name, each in inputs_of(plan)}
        batch = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
        if burst and number == BURST:
            batch[burst].view(-1)[0] = float("inf")
        yield batch


def inputs_of(plan: Plan):
    """Return the declared inputs of a spec."""
    return plan.spec.inputs.items()


def distance(one: World, other: World) -> float:
    """Return the largest difference of any number in the models of the first."""
    pairs = [(value, other[model][name]) for model, weights in one.items() for name, value in weights.items()]
    return max((a - b).abs().max().item() for a, b in pairs)


def make_net(weights: Weights) -> nn.Module:
    """Return the net by hand, in one of the layouts that the specs use, with these weights."""
    widths = [value.shape for name, value in weights.items() if name.endswith("weight") and value.ndim == 2]
    linear = [nn.Linear(shape[1], shape[0], dtype=torch.float64) for shape in widths]
    norm = [nn.BatchNorm1d(widths[0][0], dtype=torch.float64)] if "1.running_mean" in weights else []
    net = nn.Sequential(linear[0], *norm, nn.Tanh(), *linear[1:])
    net.load_state_dict(dict(weights))
    return net


def told(plan: Plan, code: str) -> set[str]:
    """Return what the plan's decisions or warnings of a code are about."""
    found = plan.to_json()
    decisions = {each["subject"] for each in found["decisions"] if each["code"] == code}
    return decisions | {each["op"] for each in found["warnings"] if each["code"] == code}


def waiting(names: set[str], backend: str) -> set[str]:
    """Return which of the updates that wait on PyTorch wait on a backend: tapes keep what they have read."""
    return names if backend == "torch" else set()


def order_of(plan: Plan) -> list[str]:
    """Return the instructions of the first function as `kind op`."""
    return [f"{each['kind']} {each['op']}" for each in plan.to_json()["functions"][0]["instructions"]]
