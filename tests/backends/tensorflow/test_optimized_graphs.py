"""TensorFlow's graph optimizer keeps every read of a variable where it is: before a write, or behind it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import build
from tests.backends.tensorflow.optimized import find_unordered, optimized
from tests.backends.test_recomputed import APART, MIXED, SIMULTANEOUS, build_of

BATCH = {name: np.ones((6, 4)) for name in "xz"}
SEVERAL = """
graphspec: 1
name: several
inputs: {x: {shape: [batch, 4]}}
models:
  net: {class: "tests.backends.tensorflow.users:Several", optimizer: {name: sgd, lr: 0.5}}
ops:
  both: {forward: net, inputs: x, outputs: [p, q]}
  fit: {loss: mse, inputs: [p, 1.0]}
  level: {call: mean, inputs: q}
  total: {call: add, inputs: [fit, level]}
  step: {update: net, loss: total}
outputs: [total, q]
"""
"""The gradient needs one result and not the other, which is given out: with the weights before the update."""


def source_of(text: str) -> str:
    """Return the code of a built spec."""
    return build(compile_step(load(text), "tensorflow"), device="cpu", allow=["tests"]).source


SOURCES = {
    "simultaneous": lambda: build_of("tensorflow", "on: true, norm: true", SIMULTANEOUS).source,
    "apart": lambda: build_of("tensorflow", "on: true, norm: true", APART).source,
    "mixed": lambda: build_of("tensorflow", "on: true", MIXED).source,
    "several": lambda: source_of(SEVERAL),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SOURCES)
def test_reads_of_recomputed_forwards_come_before_updates(name: str) -> None:
    source = SOURCES[name]()
    assert not [*find_unordered(optimized(source, BATCH))]
    loose = re.sub(r"(?<!def )\btogether\(", "tuple(", source)
    assert [*find_unordered(optimized(loose, BATCH))], "TensorFlow keeps the order by itself: `together` can go"
