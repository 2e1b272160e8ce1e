"""A step that nobody holds is freed, with its weights and graphs, however often frameworks have seen its code."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tests.features.steps import build_step

SPEC = """
graphspec: 1
name: held
rng: portable
inputs: {x: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: 3}, layer_norm, {dropout: 0.5}, {linear: 1}], optimizer: {name: adam, lr: 0.1}}
ops:
  noise: {random: normal, like: x}
  noisy: {call: add, inputs: [x, noise]}
  y: {forward: net, inputs: noisy}
  fit: {loss: mse, inputs: [y, 0.0]}
  step: {update: net, loss: fit, accumulate: 2}
outputs: [fit]
"""
BATCH = {"x": np.ones((4, 3))}
BOTH = pytest.mark.parametrize("backend", ["torch", "tensorflow"])


def live(backend: str) -> tuple[weakref.ref[object], float]:
    """Build a step, take it, and let it go; return what it held, and a number that it gave."""
    step = build_step(SPEC, backend)
    first = float(step(BATCH)["fit"])
    return weakref.ref(step.models["net"]), first


@BOTH
def test_a_step_that_nobody_holds_is_freed(backend: str) -> None:
    held = [live(backend) for _ in range(3)]
    gc.collect()
    assert [reference() for reference, _ in held] == [None] * 3
    assert len({first for _, first in held}) == 1  # whatever the steps before it did


@pytest.mark.long
@pytest.mark.needs("tensorflow")
def test_a_layer_that_normalizes_keeps_no_graph_of_tensorflow() -> None:
    from tensorflow.python.framework.func_graph import FuncGraph

    def count() -> int:
        live("tensorflow")
        gc.collect()
        return sum(type(each) is FuncGraph for each in gc.get_objects())

    count()
    assert count() == count()


@BOTH
def test_two_steps_of_one_spec_do_not_know_of_each_other(backend: str) -> None:
    one, other = build_step(SPEC, backend), build_step(SPEC, backend)
    found = [float(one(BATCH)["fit"]) for _ in range(3)]
    assert float(other(BATCH)["fit"]) == found[0]
    assert [float(other(BATCH)["fit"]) for _ in range(2)] == found[1:]
