"""A spec that every backend runs: what it is, what its batches are like, and whose code it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from compiler import Pace, Plan, compile_step
from graphspec.declare.graph import GraphSpec
from graphspec.loading import load
from tests.conformance.names import Names

ROWS = 6
BACKENDS = ("torch", "tensorflow")

Batch = Mapping[str, np.ndarray]
MakeModels = Callable[[], Mapping[str, object]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """A spec with all that is needed to take the same steps of it on every backend."""

    name: str
    source: Path | str
    """The file of the spec, or its text."""
    settings: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    """How many whole numbers there are to draw from, by input; else 2."""
    models: Mapping[str, MakeModels] = field(default_factory=dict)
    """What makes the models that are handed to ``build``, by backend."""
    names: Names = field(default_factory=dict)
    """What PyTorch calls a parameter of such a model, or of a class, by what TensorFlow calls it."""
    left_out: tuple[str, ...] = ()
    """What begins so in a state is not compared: what optimizers of one's own keep is theirs."""
    order: str = "fewest"
    rows: int = ROWS
    bursts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Inputs of ones, each with the steps in which one of its numbers is infinite."""

    def load(self) -> GraphSpec:
        """Return the spec, with random numbers that are the same on every backend."""
        return load(self.source, [*self.settings, "rng=portable"])

    def plan(self, backend: str) -> Plan:
        """Return the plan for a backend."""
        return compile_step(self.load(), backend, self.order, pace=Pace(epoch=4, batch=self.rows, run=20))

    def batches(self, spec: GraphSpec) -> Iterator[Batch]:
        """Yield batches of normal and of whole numbers, the same every time."""
        generator = np.random.default_rng(11)
        for number in count(1):
            yield {
                name: self._burst(name, spec, number) if name in self.bursts else self._draw(name, spec, generator)
                for name in spec.inputs
            }

    def _burst(self, name: str, spec: GraphSpec, number: int) -> np.ndarray:
        found = np.ones([size if isinstance(size, int) else self.rows for size in spec.inputs[name].shape or ()])
        found.flat[0] = np.inf if number in self.bursts[name] else 1.0
        return found.astype(spec.inputs[name].dtype)

    def _draw(self, name: str, spec: GraphSpec, generator: np.random.Generator) -> np.ndarray:
        declared = spec.inputs[name].shape
        shape = [
            size if isinstance(size, int) else self.rows for size in (("batch", 4) if declared is None else declared)
        ]
        dtype = spec.inputs[name].dtype
        if dtype in ("float32", "float64", "float16"):  # a step in float64 is given the numbers of one in float32
            return generator.normal(size=shape).astype("float32").astype(dtype)
        return generator.integers(0, self.classes.get(name, 2), size=shape).astype(dtype)
