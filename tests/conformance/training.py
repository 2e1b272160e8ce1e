"""The same steps on any backend, through what every user calls: build, step, state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from zlib import crc32

import numpy as np

from compiler import Plan
from runtime import Step, build
from runtime.state import State
from tests.conformance.names import Names, fill, neutral
from tests.conformance.scenario import Batch, Scenario
from tests.suite.graphs import rewriting

STEPS = 20

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """What some steps returned, and what there was after the first and after the last."""

    outputs: tuple[Arrays, ...]
    first: State
    last: State


@cache
def train(scenario: Scenario, backend: str, dtype: str = "float64", device: str = "cpu") -> Record:
    """Take twenty steps, an epoch's end and the other modes amid them; return what came of it.

    Graphs of the examples are rewritten by TensorFlow, as users run them.
    """
    is_rewritten = backend == "tensorflow" and isinstance(scenario.source, Path) and "examples" in scenario.source.parts
    with rewriting() if is_rewritten else nullcontext():
        return take_steps(scenario, backend, dtype, device)


def take_steps(scenario: Scenario, backend: str, dtype: str, device: str = "cpu") -> Record:
    """Take the steps of a record."""
    step = built(scenario, backend, dtype, device)
    outputs, first = [], None
    for mode, batch, dataset in schedule(step, scenario):
        found = step(batch, mode, dataset=dataset)
        outputs.append(dict(named(step, found)))
        first = first or step.state()
        if len(outputs) == STEPS // 2:
            step.end_epoch()
    assert first is not None
    return Record(outputs=tuple(outputs), first=shared(first, scenario), last=shared(step.state(), scenario))


def shared(state: State, scenario: Scenario) -> State:
    """Return what there is of a state on every backend, under PyTorch's names."""
    found = neutral(state, scenario.names)
    kept = {name: value for name, value in found.arrays.items() if not name.startswith(scenario.left_out)}
    return replace(found, arrays=kept, counters=without(found.counters, scenario.left_out))


def without(tree: Mapping[str, object], prefixes: tuple[str, ...], path: str = "counters") -> dict[str, object]:
    """Return plain data without what begins with one of some paths."""
    kept = {key: value for key, value in tree.items() if not f"{path}.{key}.".startswith(prefixes)}
    return {
        key: without(value, prefixes, f"{path}.{key}") if isinstance(value, dict) else value
        for key, value in kept.items()
    }


def schedule(step: Step, scenario: Scenario) -> Iterator[tuple[str, Batch, str | None]]:
    """Yield the modes of the steps, their batches, and of which data sets these are, in turn.

    Training is twice interrupted by all other modes.
    """
    others = [mode.mode for mode in step.plan.program.modes if mode.mode != "train"]
    modes = [*["train"] * (STEPS // 2), *others, *["train"] * (STEPS // 2), *others, *others]
    turns = cycle(step.plan.program.datasets or (None,))
    for mode, batch in zip(modes, scenario.batches(step.spec), strict=False):
        yield mode, batch, next(turns)


def built(scenario: Scenario, backend: str, dtype: str = "float64", device: str = "cpu") -> Step:
    """Build a scenario; models of the user's own begin with numbers that depend on their names alone."""
    models = scenario.models[backend]() if scenario.models else {}
    step = build(planned(scenario, backend), device=device, dtype=dtype, allow=scenario.allow, models=models)
    foreign = {each.name for each in step.plan.program.models if each.kind == "class"}
    if foreign:
        step.restore(begin(step.state(), foreign, scenario.names))
    return step


@cache
def planned(scenario: Scenario, backend: str) -> Plan:
    """Return the plan of a scenario: it is the same for every type of numbers."""
    return scenario.plan(backend)


def begin(state: State, foreign: set[str], names: Names) -> State:
    """Return a state in which models of the user's begin with small numbers, each drawn from its name."""

    def draw(name: str, value: np.ndarray) -> np.ndarray:
        return start(name, value) if name.split(".")[1] in foreign else value

    return fill(state, names, draw)


def start(name: str, value: np.ndarray) -> np.ndarray:
    """Return the numbers that a parameter begins with: buffers and slots stay as they are."""
    if not name.startswith("models.") or value.dtype.kind != "f" or "running" in name:
        return value
    size = value.shape[-1] if value.ndim > 1 else 16
    drawn = np.random.default_rng(crc32(name.encode())).uniform(-1.0, 1.0, size=value.shape) / np.sqrt(size)
    return drawn.astype(value.dtype)


def named(step: Step, outputs: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the outputs as arrays; a set of gradients is an output for each parameter."""
    for name, value in outputs.items():
        if isinstance(value, tuple | list):
            yield from ((f"{name}.{index}", step.numpy(each)) for index, each in enumerate(value))
        else:
            yield name, step.numpy(value)
