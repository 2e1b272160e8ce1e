"""A step built for profiling shows its ops by name in the framework's profiler, and computes the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, build

pytestmark = pytest.mark.row("D13")

SPEC = """
graphspec: 1
name: profiled
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 8}, relu, {linear: 3}], optimizer: {name: sgd, lr: 0.1, momentum: 0.5}}
ops:
  noise: {random: normal, like: x}
  noisy: {call: add, inputs: [x, noise]}
  answer: {forward: net, inputs: noisy}
  error_of_it: {call: mean, inputs: answer}
  learn_it: {update: net, loss: error_of_it}
  follow_it: {ema: net, decay: 0.5}
outputs: [error_of_it]
"""
OPS = {"noise", "noisy", "answer", "error_of_it", "learn_it", "follow_it"}
BATCH = {"x": np.arange(8.0).reshape(2, 4) / 8}


def profiled(backend: str, **options: bool) -> Step:
    return build(compile_step(load(SPEC), backend), device="cpu", dtype="float64", **options)


def profile_torch(step: Step, folder: Path) -> set[str]:
    """Return the names that PyTorch's profiler has."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        step(BATCH)
    return {event.key for event in found.key_averages()}


def profile_tensorflow(step: Step, folder: Path) -> set[str]:
    """Return the first parts of the names of operations in a profile that TensorFlow wrote."""
    import tensorflow as tf

    step(BATCH)
    tf.profiler.experimental.start(str(folder))
    step(BATCH)
    tf.profiler.experimental.stop()
    (written,) = folder.rglob("*.xplane.pb")
    return {name.decode() for name in re.findall(rb"(\w+)/[\w/]+:\w+", written.read_bytes())}


PROFILERS: dict[str, Callable[[Step, Path], set[str]]] = {"torch": profile_torch, "tensorflow": profile_tensorflow}


@pytest.mark.filterwarnings("ignore")  # the profilers' own
def test_the_profile_has_every_op_by_name(backend: str, tmp_path: Path) -> None:
    found = PROFILERS[backend](profiled(backend, profile=True), tmp_path)
    assert found >= OPS


@pytest.mark.filterwarnings("ignore")
def test_the_names_are_not_there_where_nobody_asked_for_them(backend: str, tmp_path: Path) -> None:
    step = profiled(backend)
    assert OPS.isdisjoint(PROFILERS[backend](step, tmp_path))
    assert "record_function" not in step.source
    assert "name_scope" not in step.source


def test_a_profiled_step_computes_the_same_numbers(backend: str) -> None:
    steps = [profiled(backend), profiled(backend, profile=True), profiled(backend, profile=True, debug=True)]
    for _ in range(3):
        for step in steps:
            step(BATCH)
    first, *others = (step.state().arrays for step in steps)
    for other in others:
        assert all(np.allclose(value, other[name], rtol=1e-14, atol=0) for name, value in first.items())
