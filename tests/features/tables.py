"""A table and a vector whose gradients are given: what is looked up times `g`, summed, plus the vector times `h`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from runtime import Step
from tests.features.steps import build_step, set_weights, weights

COUNT, SIZE = 6, 3
SPEC = """
graphspec: 1
name: tables
inputs:
  ids: {shape: [batch], dtype: int64}
  g: {shape: [batch, 3]}
  h: {shape: [3]}
models:
  table: {layers: [{embedding: {count: 6, size: 3, sparse: true}}]}
  other: {parameter: {shape: [3]}}
ops:
  rows: {forward: table, inputs: ids}
  first: {call: mul, inputs: [rows, g]}
  one: {call: sum, inputs: first}
  vector: {forward: other}
  second: {call: mul, inputs: [vector, h]}
  two: {call: sum, inputs: second}
  cost: {call: add, inputs: [one, two]}
  step: {update: [table, other], loss: cost, optimizer: OPTIMIZER}
"""
DENSE = SPEC.replace(", sparse: true", "").replace(", sparse: lazy", "")
START = {"table.0.weight": np.linspace(-1.0, 1.0, COUNT * SIZE).reshape(COUNT, SIZE), "other.value": np.ones(SIZE)}
Batch = Mapping[str, np.ndarray]


def batches(steps: int, *, seed: int = 0) -> Iterator[Batch]:
    """Yield batches in which rows are named several times, or in no batch at all: the last of them never."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        ids = random.integers(0, COUNT - 1, size=4)
        yield {"ids": ids, "g": random.normal(size=(4, SIZE)), "h": random.normal(size=SIZE)}


def begin(optimizer: str, backend: str, more: str = "", *, end: str = "", text: str = SPEC) -> Step:
    """Return a step from START; ``more`` is written into the update, ``end`` behind the spec."""
    text = text.replace("optimizer: OPTIMIZER", f"optimizer: {optimizer}{more}") + end
    step = build_step(text, backend)
    set_weights(step, {name: value for name, value in START.items() if name in weights(step)})
    return step


def slopes(batch: Batch) -> dict[str, np.ndarray]:
    """Return the gradients of a batch: of the table a whole one, to which every lookup adds its part."""
    table = np.zeros((COUNT, SIZE))
    np.add.at(table, batch["ids"], batch["g"])
    return {"table.0.weight": table, "other.value": batch["h"].copy()}


class Rule:
    """Adam, Adagrad or SGD in numpy; lazy, it steps the rows of tables that are named."""

    def __init__(self, name: str, lr: float, *, lazy: bool, first: float = 0.0) -> None:
        self.name, self.lr, self.lazy, self.count = name, lr, lazy, 0
        self.w = {name: value.copy() for name, value in START.items()}
        self.m = {name: np.zeros_like(value) for name, value in START.items()}
        self.v = {name: np.full_like(value, first) for name, value in START.items()}

    def step(self, gradients: Mapping[str, np.ndarray], named: Iterable[int]) -> None:
        """Step on gradients; ``named`` are the rows of the table that some lookup of the update names."""
        self.count += 1
        for name, g in gradients.items():
            at = sorted(set(named)) if self.lazy and name.startswith("table") else slice(None)
            w, m, v, g = self.w[name], self.m[name], self.v[name], g[at]
            if self.name == "sgd":
                w[at] -= self.lr * g
            elif self.name == "adagrad":
                v[at] += g * g
                w[at] -= self.lr * g / (np.sqrt(v[at]) + 1e-10)
            else:
                m[at], v[at] = 0.9 * m[at] + 0.1 * g, 0.999 * v[at] + 0.001 * g * g
                root = np.sqrt(v[at] / (1 - 0.999**self.count)) + 1e-8
                w[at] -= self.lr * m[at] / (1 - 0.9**self.count) / root
