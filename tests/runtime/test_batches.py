"""What fails at the size of a batch alone is tried at that of the data, or at a second size, and says which."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import StepError, build

SPEC = """
graphspec: 1
name: sized
inputs: {x: {shape: [batch, 4]}}
models:
  net:
    class: {torch: "tests.runtime.sized:Torch", tensorflow: "tests.runtime.sized:TensorFlow"}
    args: {multiple: MULTIPLE}
    optimizer: {name: sgd, lr: 0.1}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, x]}
  step: {update: net, loss: loss}
"""
DATA = "data: {train: {source: npz, path: data.npz, batch: 10}}\n"
SCALED = "precision: {compute: float16}\n"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "tensorflow")])
def backend(request):
    return request.param


def build_with(multiple: int, backend: str, more: str = ""):
    """Return the step of a model that wants batches of a multiple."""
    plan = compile_step(load(SPEC.replace("MULTIPLE", str(multiple)) + more), backend)
    return build(plan, device="cpu", allow=["tests"])


@pytest.mark.parametrize("more", ["", SCALED], ids=["plain", "scaled"])
def test_a_model_of_even_batches_is_tried_at_a_second_size(backend, more):
    step = build_with(4, backend, more)
    assert np.isfinite(step.numpy(step({"x": np.ones((8, 4), np.float32)})["loss"]))


def test_the_batch_of_the_data_is_the_one_that_counts(backend):
    build_with(5, backend, DATA)
    with pytest.raises(StepError, match=r"at batch 10 \(that of `data.train`\)"):
        build_with(4, backend, DATA)


def test_what_fails_at_every_size_says_at_which_it_was_tried(backend):
    with pytest.raises(StepError, match=r"at batch 2 and 48 \(made up, as the spec declares no data\)"):
        build_with(7, backend)


SAMPLED = """
graphspec: 1
name: sampled
inputs: {image: {shape: [batch, 4]}, label: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  noise: {random: normal, shape: [batch, 3]}
  given: {call: concat, inputs: [noise, label]}
  made: {forward: net, inputs: given}
  step: {update: net, loss: "mse(made, image)"}
  sample: {call: tanh, inputs: made, mode: infer}
outputs: [sample]
"""


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "tensorflow")]
)
def test_a_mode_asks_for_no_input_that_it_reads_only_the_batch_size_of(backend):
    step = build(compile_step(load(SAMPLED), backend), device="cpu")
    assert step({"label": np.zeros((5, 2), "float32")}, mode="infer")["sample"].shape == (5, 4)
