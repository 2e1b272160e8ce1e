"""How many batches an epoch has, before anything is opened; and another file in a set's place."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import find_length, open_feed, replace_source

SPEC = """
graphspec: 1
name: numbers
inputs: {{x: {{shape: [batch]}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{{train}}}}}
"""
DIGITS = """
graphspec: 1
name: digits
inputs: {{image: {{shape: [batch, 1, 8, 8]}}, label: {{shape: [batch], dtype: int64}}}}
ops: {{mean: {{call: mean, inputs: image}}}}
outputs: mean
data: {{train: {{source: digits, batch: 64}}, test: {{source: digits, batch: 64}}, {more}}}
"""


def spec_of(train: str):
    return load(SPEC.format(train=train))


@pytest.fixture
def held(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(11, dtype=np.float32), other=np.zeros(3))
    (tmp_path / "x.csv").write_text("x,y\n" + "\n".join(f"{number},a" for number in range(11)))
    return tmp_path


@pytest.mark.parametrize("source", ["npz", "csv"])
@pytest.mark.parametrize(
    ("options", "length"), [("batch: 4", 2), ("batch: 4, drop_last: false", 3), ("batch: 12", None)]
)
def test_the_length_of_a_file_is_that_of_an_epoch(held, source, options, length):
    assert find_length(spec_of(f"source: {source}, path: x.{source}, {options}"), "train", held) == length


def test_the_length_of_the_digits_is_that_of_their_parts():
    spec = load(DIGITS.format(more="all: {source: digits, split: all, batch: 100}"))
    assert [find_length(spec, role) for role in ("train", "test", "all", "none")] == [1437 // 64, 6, 18, None]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut short", b"\xff\xfe"])
@pytest.mark.parametrize("source", ["npz", "csv"])
def test_of_a_broken_file_no_length_is_known(tmp_path, source, content):
    if content is not None:
        (tmp_path / f"y.{source}").write_bytes(content)
    assert find_length(spec_of(f"source: {source}, path: y.{source}, batch: 1"), "train", tmp_path) is None


def test_an_array_that_is_missing_or_one_number_has_no_length(tmp_path):
    np.savez(tmp_path / "x.npz", y=np.zeros(3))
    assert find_length(spec_of("source: npz, path: x.npz, batch: 1"), "train", tmp_path) is None
    np.savez(tmp_path / "x.npz", x=np.float32(3))
    assert find_length(spec_of("source: npz, path: x.npz, batch: 1"), "train", tmp_path) is None


def test_only_the_header_of_an_array_is_read(tmp_path):
    """The numbers behind the header are overwritten: whoever reads them meets a wrong checksum."""
    np.savez(tmp_path / "x.npz", x=np.full(1000, 7.0))
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(content.replace(np.full(900, 7.0).tobytes(), bytes(7200)))
    spec = spec_of("source: npz, path: x.npz, batch: 10")
    assert find_length(spec, "train", tmp_path) == 100
    with pytest.raises(SpecError, match="GS221"):
        open_feed(spec, "train", seed=0, directory=tmp_path)


def test_a_users_class_is_not_imported(tmp_path):
    (tmp_path / "own_lengths.py").write_text("raise SystemExit")
    assert find_length(spec_of('class: "own_lengths:Source", batch: 1'), "train", tmp_path) is None
    assert "own_lengths" not in sys.modules


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_file_takes_the_place_of_a_set(held, kind):
    spec = spec_of("class: 'a:B', args: {n: 3}, batch: 4, shuffle: true, columns: {x: x}")
    feed = open_feed(replace_source(spec, "train", held / f"x.{kind}"), "train", seed=0)
    assert [batch["x"].tolist() for batch in feed.one_pass()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_set_that_is_not_declared_is_read_as_the_training_set_is(held):
    spec = replace_source(spec_of("source: npz, path: none.npz, batch: 4"), "test", held / "x.npz")
    feed = open_feed(spec, "test", seed=0)
    assert [len(batch["x"]) for batch in feed.one_pass()] == [4, 4, 3]


def test_what_is_neither_a_set_nor_a_file_is_told(tmp_path):
    with pytest.raises(
        SpecError, match=r"GS221.*'tset' is neither a set of the spec nor a file.*did you mean the set 'test'"
    ):
        replace_source(load(DIGITS.format(more="")), "test", tmp_path / "tset")


def test_without_any_set_it_is_not_known_how_to_read_a_file(tmp_path):
    spec = load(SPEC.format(train="").replace("data: {train: {}}", ""))
    with pytest.raises(SpecError, match=r"GS220.*neither `data.test` nor `data.train`"):
        replace_source(spec, "test", tmp_path / "x.npz")
