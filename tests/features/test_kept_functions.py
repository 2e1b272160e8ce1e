"""A model may keep lambdas that read it: they are no state, and those of a copy read the copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, build

SPEC = """
graphspec: 1
name: kept
inputs: {x: {shape: [batch, 2]}}
models:
  net: {class: "tests.features.keepers:make_BACKEND", args: {kind: KIND}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: net}
ops:
  out: {forward: net, inputs: x}
  cost: {call: mean, inputs: out}
  step: {update: net, loss: cost}
  average: {ema: net, into: slow, decay: 0.5}
  before: {forward: slow, inputs: x, after: []}
outputs: [out, before]
"""
KINDS = ["itself", "method", "listed", "nested", "partial", "bound"]
ONES = {"x": np.ones((1, 2), np.float32)}


def make(backend: str, kind: str) -> Step:
    """Return a step with a model and its average."""
    text = SPEC.replace("BACKEND", backend).replace("KIND", kind)
    return build(compile_step(load(text), backend), device="cpu", allow=("tests",))


def outputs(step: Step, count: int) -> list[tuple[float, float]]:
    """Return what the model and its average give, step by step."""
    found = [step(ONES) for _ in range(count)]
    return [(float(step.numpy(each["out"])[0, 0]), float(step.numpy(each["before"])[0, 0])) for each in found]


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_a_copy_read_the_copy(kind: str, backend: str) -> None:
    # Weights of the model: 1, 0, -1, -2; of the average: 1, 0.5, -0.25, -1.125. The outputs are sums of two.
    assert outputs(make(backend, kind), 4) == [(2.0, 2.0), (0.0, 1.0), (-2.0, -0.5), (-4.0, -2.25)]


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_and_an_export_have_the_weights(kind: str, backend: str, tmp_path: Path) -> None:
    first, second = make(backend, kind), make(backend, kind)
    outputs(first, 2)
    first.save(tmp_path / "saved")
    second.load(tmp_path / "saved")
    assert outputs(second, 1) == [(-2.0, -0.5)]
    assert first.export(tmp_path / "out", mode="eval", values=["out"]).program is not None
