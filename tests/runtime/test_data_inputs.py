"""Which inputs a set of data must have: those of the modes that its batches are for."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError, load
from runtime.data import open_data

SPEC = """
graphspec: 1
name: inputs
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch]}, weight: {shape: [batch, 1]}, probe: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 1}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, weight], mode: train}
  step: {update: net, loss: cost}
  error: {metric: mean, inputs: y, mode: [eval, test]}
  answer: {forward: net, inputs: probe, mode: infer}
outputs: [cost, error, answer]
data:
  train: {source: npz, path: train.npz, batch: 2}
  test: {source: npz, path: test.npz, batch: 2}
run: {steps: 5}
"""
ROWS = {"x": np.ones((4, 2), "float32"), "probe": np.ones((4, 2), "float32")}
ROWS |= {"y": np.ones(4, "float32"), "weight": np.ones((4, 1), "float32")}


def columns(workdir, role, offered, *overrides):
    """Return the inputs that a set gives, of a file that offers some."""
    np.savez(workdir / f"{role}.npz", **{name: ROWS[name] for name in offered})
    batches = open_data(load(SPEC, overrides), role, seed=0, directory=workdir)
    return sorted(next(iter(batches.epoch(0))))


@pytest.mark.parametrize(("role", "needed"), [("train", ["weight", "x"]), ("test", ["x", "y"])])
def test_a_set_has_the_inputs_that_its_modes_read(workdir, role, needed):
    assert columns(workdir, role, needed) == needed
    assert columns(workdir, role, ROWS) == needed


@pytest.mark.parametrize(("role", "missing"), [("train", "weight"), ("test", "y")])
def test_one_that_its_modes_read_is_asked_for(workdir, role, missing):
    with pytest.raises(SpecError, match=rf"GS223\]: data.{role}: the source has no '{missing}'"):
        columns(workdir, role, ROWS.keys() - {missing})


def test_a_picture_that_another_mode_makes_needs_its_inputs_in_training(workdir):
    images = "run.images={value: answer, every: 5 steps}"
    assert columns(workdir, "train", ROWS, images) == ["probe", "weight", "x"]


def test_the_mode_of_the_evaluation_says_what_it_reads(workdir):
    assert columns(workdir, "test", ROWS, "run.eval={every: 5 steps, mode: infer}") == ["probe", "x"]
