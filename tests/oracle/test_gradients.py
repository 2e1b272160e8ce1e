"""The derivatives of the oracle: two ways against each other, and against finite differences."""

from __future__ import annotations

import json

import numpy as np
import pytest

from graphspec.loading import load
from tests.oracle.gradients import by_complex_step, by_graph
from tests.oracle.oracle import Oracle
from tests.oracle.step import StepValues
from tests.oracle.world import SecondOrderError

pytestmark = pytest.mark.needs("torch")

SHAPES = {
    "0.weight": (4, 4),
    "0.bias": (4,),
    "2.weight": (4, 4),
    "2.bias": (4,),
}
NORMAL = {"1.weight": (4,), "1.bias": (4,), "1.running_mean": (4,), "1.running_var": (4,), "1.num_batches_tracked": ()}
PLAIN = [{"linear": 4}, "tanh", {"linear": 4}]
NORMED = [{"linear": 4}, "batch_norm", {"linear": 4}]


def begin(ops: dict, layers: list) -> StepValues:
    """Return the first step of a spec of two models, not yet evaluated."""
    shape = {"shape": ["batch", 4]}
    models = {"a": {"layers": layers, "optimizer": "sgd"}, "b": {"layers": PLAIN, "optimizer": "sgd"}}
    document = {"graphspec": 1, "name": "s", "rng": "portable", "inputs": {"x": shape, "y": shape}, "models": models}
    spec = load(json.dumps({**document, "ops": ops}) + "\n")
    shapes = {"a": SHAPES | (NORMAL if layers is NORMED else {}), "b": SHAPES}
    generator = np.random.default_rng(3)
    oracle = Oracle(spec, shapes)
    oracle.step({name: generator.normal(size=(3, 4)) for name in "xy"})
    return oracle.last


CHAIN = {
    "h": {"forward": "a", "inputs": "x"},
    "v": {"forward": "b", "inputs": "h"},
    "w": {"forward": "b", "inputs": "v", "train": False},
    "l": {"loss": "mse", "inputs": ["w", "y"]},
}
PENALTY = {
    **CHAIN,
    "slope": {"gradient": "l", "wrt": "v"},
    "steep": {"loss": "mse", "inputs": ["slope", 1.0]},
    "total": {"call": "add", "inputs": ["l", "steep"]},
}


@pytest.mark.parametrize("layers", [PLAIN, NORMED], ids=["plain", "normalized"])
def test_complex_step_and_the_graph_give_the_same_first_derivatives(layers):
    step = begin({**CHAIN, "u": {"update": ["a", "b"], "loss": "l"}}, layers)
    targets = {**step.targets(("a", "b")), ("", "h"): (3, 4)}
    exact, graph = by_complex_step(step.base, "l", targets), by_graph(step.base, "l", targets)
    for target, value in exact.items():
        np.testing.assert_allclose(graph[target].detach().numpy(), value, rtol=1e-12, atol=1e-15)


def test_complex_step_declines_what_is_differentiated_twice():
    step = begin({**PENALTY, "u": {"update": ["a", "b"], "loss": "total"}}, PLAIN)
    with pytest.raises(SecondOrderError):
        by_complex_step(step.base, "total", step.targets(("a",)))


@pytest.mark.parametrize("layers", [PLAIN, NORMED], ids=["plain", "normalized"])
def test_second_derivatives_are_those_of_finite_differences(layers):
    document = {**PENALTY, "u": {"update": ["a", "b"], "loss": "total"}}
    step = begin(document, layers)
    exact = by_graph(step.base, "total", step.targets(("a", "b")))
    for target in (("a", "0.weight"), ("b", "2.weight")):
        value = exact[target].detach().numpy()
        assert np.abs(value).max() > 1e-3
        for index in [(0, 1), (2, 3)]:
            assert abs(value[index] - difference(step, target, index)) < 1e-6


def difference(step: StepValues, target: tuple[str, str], index: tuple[int, int]) -> float:
    """Return the central difference of the penalised loss by one weight, every value computed anew."""
    found = []
    for sign in (1, -1):
        start = {model: dict(state) for model, state in step.start.items()}
        moved = start[target[0]][target[1]].copy()
        moved[index] += sign * 1e-5
        start[target[0]][target[1]] = moved
        found.append(again(step, start).base.value("total").item())
    return (found[0] - found[1]) / 2e-5


def again(step: StepValues, start: dict) -> StepValues:
    """Return the same step from other weights."""
    rest = {"optimizers": step.optimizers, "draws": step.draws, "number": step.number}
    rest |= {"states": step.states, "windows": step.windows, "firings": step.firings}
    return StepValues(step.meaning, step.versions.firing, batch=step.batch, start=start, **rest)


def test_a_stopped_gradient_is_a_constant():
    document = {**PENALTY, "slope": {"gradient": "l", "wrt": "v", "stop": True}}
    step = begin({**document, "u": {"update": ["a", "b"], "loss": "l"}}, PLAIN)
    targets = step.targets(("a", "b"))
    assert not any(value.any() for value in by_complex_step(step.base, "steep", targets).values())
