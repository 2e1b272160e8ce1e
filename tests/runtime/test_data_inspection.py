"""Inspection: numbers that are not finite and labels out of range are found, where the compiler knows the range."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler import Observations, compile_step
from compiler.types.dimension import TensorType
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data.inspection import Inspector

SPEC = """
graphspec: 1
name: inspected
inputs: {{x: {{shape: [batch, 2, 3]}}, y: {{shape: [batch], dtype: int64}}}}
models: {{net: {{{model}, optimizer: sgd}}}}
ops:
  scores: {{forward: net, inputs: x}}
  error: {{loss: cross_entropy, inputs: [scores, y]}}
  learn: {{update: net, loss: error}}
data: {{train: {{source: npz, path: x.npz, batch: 4}}}}
"""
LAYERS = "layers: [flatten, {linear: 5}]"
LABELS = """
graphspec: 1
name: labels
inputs:
  words: {{shape: [batch, 4], dtype: int32}}
  y: {{shape: [batch], dtype: int64}}
  x: {{shape: [batch, 5]}}
  z: {{shape: [batch, 1], dtype: uint8}}
models: {{net: {{layers: [{{embedding: {{count: 30, size: 2}}}}], optimizer: sgd}}}}
ops:
  vectors: {{forward: net, inputs: words}}
  loss: {{call: mean, inputs: vectors}}
  learn: {{update: net, loss: loss}}
  {ops}
data: {{train: {{source: npz, path: x.npz, batch: 4}}}}
"""
FLAT = "a: {call: reshape, inputs: z, args: {shape: [-1]}}"


@pytest.fixture
def inspector():
    return Inspector.of(compile_step(load(SPEC.format(model=LAYERS))))


def batch(**changed):
    return {"x": np.zeros((4, 2, 3), np.float32), "y": np.arange(4), **changed}


def refusal(inspector, given, number: int = 7) -> str:
    with pytest.raises(SpecError, match="GS25") as caught:
        inspector.inspect(given, number)
    return str(caught.value)


def limits(ops: str) -> dict[str, int | None]:
    """Return, by input, how many classes the inspection of a spec with these ops knows; None for none."""
    found = Inspector.of(compile_step(load(LABELS.format(ops=ops))))
    known = {label.input: label.count for label in found.labels}
    return {name: known.get(name) for name in ("words", "y", "z")}


def test_a_sound_batch_passes(inspector):
    inspector.inspect(batch(y=np.array([0, 4, 4, 0])), 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_told_with_its_place_and_their_number(inspector, value):
    x = np.zeros((4, 2, 3), np.float32)
    x[2, 1, 0] = x[3, 0, 0] = value
    text = refusal(inspector, batch(x=x))
    assert f"GS250]: data.train: batch 7: input 'x' has 2 values not finite: {value} at row 2, [1, 0]" in text
    assert "data: {train: {source: npz" in text


@pytest.mark.parametrize(("value", "count"), [(5, 1), (-1, 1), (-100, 1), (2**40, 1)])
def test_a_label_out_of_range_is_told_with_its_place_and_what_needs_it(inspector, value, count):
    text = refusal(inspector, batch(y=np.array([0, 1, value, 4])))
    assert f"GS251]: data.train: batch 7: input 'y' has {count} value outside 0 to 4: {value} at row 2" in text
    assert "it is the target of cross_entropy in 'error'" in text


def test_all_that_is_wrong_is_told_at_once(inspector):
    text = refusal(inspector, batch(x=np.full((4, 2, 3), np.nan), y=np.array([9, 0, 9, 9])))
    assert "has 24 values not finite" in text
    assert "has 3 values outside 0 to 4: 9 at row 0" in text


def test_tensors_of_the_host_are_looked_at_and_others_left(inspector):
    text = refusal(inspector, {"x": torch.full((4, 2, 3), torch.nan), "y": torch.tensor([5, 0, 0, 0])})
    assert "GS250" in text
    assert "GS251" in text
    inspector.inspect(
        {"x": torch.full((4, 2, 3), torch.nan, dtype=torch.bfloat16), "y": torch.zeros(4, device="meta")}, 1
    )


def test_inputs_that_are_missing_are_left_to_the_step(inspector):
    inspector.inspect({}, 1)
    inspector.inspect({"y": np.zeros(0, np.int64)}, 1)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("", {"words": 30, "y": None, "z": None}),
        ("a: {call: one_hot, inputs: y, args: {classes: 6}}", {"words": 30, "y": 6, "z": None}),
        ("a: {loss: nll, inputs: [x, y]}", {"words": 30, "y": 5, "z": None}),
        ("a: {loss: cross_entropy, inputs: [x, y], args: {axis: -1}}", {"words": 30, "y": 5, "z": None}),
        (
            "h: {call: reshape, inputs: x, args: {shape: [-1, 1, 5]}}\n  b: {loss: ctc, inputs: [h, z, y, y]}",
            {"words": 30, "y": None, "z": 5},
        ),
        ("a: {call: gather, inputs: [x, z]}", {"words": 30, "y": None, "z": 5}),
        (f"{FLAT}\n  b: {{loss: nll, inputs: [x, a]}}", {"words": 30, "y": None, "z": 5}),
        ("a: {call: max, inputs: x}", {"words": 30, "y": None, "z": None}),
    ],
)
def test_the_range_of_a_label_follows_from_what_uses_it(ops, expected):
    outputs = "outputs: [loss, a]" if ops and "b:" not in ops else "outputs: [loss, b]" if ops else ""
    assert limits(f"{ops}\n{outputs}") == expected


def test_it_is_said_what_is_looked_for(inspector):
    assert inspector.notes == (
        "check_data: finite values in x",
        "check_data: 0 to 4 in y, the target of cross_entropy in 'error'",
    )


def test_of_a_class_the_number_of_classes_is_known_once_it_was_observed():
    spec = load(SPEC.format(model="class: a:Net"))
    blind = Inspector.of(compile_step(spec))
    assert blind.labels == ()
    assert "how many classes there are is not known, so not checked" in blind.notes[1]
    seen = Observations(outputs={"scores": TensorType(("batch", 5), "float32")})
    assert "outside 0 to 4" in refusal(Inspector.of(compile_step(spec, observed=seen)), batch(y=np.array([5, 0, 0, 0])))
