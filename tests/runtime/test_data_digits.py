"""The bundled digits: split, scale, shapes, and the options of the source."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.resources import files

import numpy as np
import pytest

from graphspec.declare.data import DIGITS, DataSource, describe_digits
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_data

SPEC = """
graphspec: 1
name: digits
inputs: {{image: {{shape: {shape}}}, label: {{shape: [batch], dtype: int64}}}}
ops: {{mean: {{call: mean, inputs: image}}}}
outputs: mean
data: {{{role}: {{source: digits, batch: 2000, drop_last: false, {options}}}}}
"""


def read(options: str = "", *, role: str = "train", shape: str = "[batch, 1, 8, 8]"):
    spec = load(SPEC.format(role=role, options=options, shape=shape))
    return next(open_data(spec, role, seed=0).epoch(0))


def test_training_and_test_samples_make_up_all_digits():
    train, test, everything = read(), read(role="test"), read("split: all")
    assert (len(train["label"]), len(test["label"]), len(everything["label"])) == (1437, 360, 1797)


def test_the_split_can_be_named():
    assert np.array_equal(read("split: test")["image"], read(role="test")["image"])


def test_the_test_part_holds_a_fifth_of_each_digit():
    shares = np.bincount(read(role="test")["label"]) / np.bincount(read("split: all")["label"])
    assert np.all(np.abs(shares - 0.2) < 0.01)


def test_images_lie_between_minus_one_and_one_as_float32():
    image = read()["image"]
    assert image.dtype == np.float32
    assert (image.min(), image.max()) == (-1.0, 1.0)


def test_the_range_can_be_chosen():
    image, default = read("args: {range: [0, 1]}")["image"], read()["image"]
    assert (image.min(), image.max()) == (0.0, 1.0)
    np.testing.assert_allclose(image, (default + 1) / 2, atol=1e-7)


def test_an_image_can_be_a_row_of_64():
    image = read("args: {flatten: true}", shape="[batch, 64]")["image"]
    assert np.array_equal(image.reshape(-1, 1, 8, 8), read()["image"])


def test_images_and_labels_belong_together():
    """Zeros have an empty middle, ones a full one: true of the data set, whoever reads it."""
    held = read("split: all, args: {range: [0, 1]}")
    middle = held["image"][:, 0, 3:5, 3:5].mean(axis=(1, 2))
    assert middle[held["label"] == 0].mean() < 0.2 < 0.6 < middle[held["label"] == 1].mean()


def test_a_wrong_shape_names_the_option_that_mends_it():
    with pytest.raises(SpecError, match=r"GS228.*\[batch, 1, 8, 8\], the spec declares \[batch, 64\]") as caught:
        read(shape="[batch, 64]")
    assert "flatten: true" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("split: validation", "`split` is one of train, test, all, found 'validation'"),
        ("args: {rnage: [0, 1]}", "takes no argument 'rnage'"),
        ("args: {range: [1, 0]}", "the smaller one first"),
        ("args: {range: 3}", "`range` is two numbers"),
        ("args: {flatten: 1}", "`flatten` is true or false, found 1"),
        ("path: digits.npz", "a source `digits` has no `path`; it belongs to `npz`"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(SpecError, match=message):
        read(options)


@pytest.mark.parametrize(("dtype", "fits"), [("float64", True), ("bfloat16", True), ("int64", False), ("bool", False)])
def test_pixels_are_real_numbers(dtype, fits):
    text = SPEC.format(role="train", options="", shape=f"[batch, 1, 8, 8], dtype: {dtype}")
    with nullcontext() if fits else pytest.raises(SpecError, match=f"as float32, the spec declares {dtype}"):
        load(text)


@pytest.mark.parametrize(("dtype", "fits"), [("uint8", True), ("int32", True), ("float32", True), ("bool", False)])
def test_labels_are_whole_numbers_to_nine(dtype, fits):
    text = SPEC.format(role="train", options="", shape="[batch, 1, 8, 8]").replace("int64", dtype)
    with nullcontext() if fits else pytest.raises(SpecError, match=f"as int64, the spec declares {dtype}"):
        label = next(open_data(load(text), "train", seed=0).epoch(0))["label"]
        assert (label.dtype, label.min(), label.max()) == (np.dtype(dtype), 0, 9)


def test_what_is_said_of_the_file_is_so():
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file) as held:
        is_test, shape = held["is_test"], held["image"].shape[1:]
    assert {"train": sum(~is_test), "test": sum(is_test), "all": len(is_test)} == DIGITS
    assert (*describe_digits(DataSource(source="digits", batch=1))["image"].shape[2:],) == shape


def test_a_set_of_an_evaluation_needs_what_its_mode_reads():
    """The label is read in train mode alone, so that the test set has no need of a column for it."""
    text = """
graphspec: 1
name: modes
inputs: {image: {shape: [batch, 1, 8, 8]}, target: {shape: [batch], dtype: int64}}
ops:
  size: {call: mean, inputs: target, mode: train}
  mean: {call: mean, inputs: image}
outputs: [size, mean]
data:
  train: {source: digits, batch: 64, columns: {target: label}}
  test: {source: digits, batch: 64}
"""
    assert set(load(text).data) == {"train", "test"}
    with pytest.raises(SpecError, match=r"GS223\]: data.test: the source has no 'target' for the input 'target'"):
        load(text.replace(", mode: train", ""))
