"""Tables: which cells become which arrays, and where a broken file is broken."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_data

SPEC = """
graphspec: 1
name: table
inputs: {{x: {{shape: [batch, 2]}}, y: {{shape: [batch], dtype: int64}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{source: {source}, path: held.{source}, batch: 2, drop_last: false, columns: {{{columns}}}}}}}
"""
ROWS = "a,b,y,place\n1,2.5,0,Rome\n-3,4e1,2,Oslo\n5, .5,1,Bern\n"


def read(folder, text: str | bytes = ROWS, columns: str = "x: [a, b]", source: str = "csv"):
    if source == "csv":
        (folder / "held.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    spec = load(SPEC.format(source=source, columns=columns))
    batches = list(open_data(spec, "train", seed=0, directory=folder).epoch(0))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in ("x", "y")}


def refusal(folder, *args, **settings) -> str:
    with pytest.raises(SpecError, match="GS2") as caught:
        read(folder, *args, **settings)
    return str(caught.value)


def test_columns_are_put_side_by_side(tmp_path):
    held = read(tmp_path)
    assert held["x"].tolist() == [[1, 2.5], [-3, 40], [5, 0.5]]
    assert held["y"].tolist() == [0, 2, 1]
    assert (held["x"].dtype, held["y"].dtype) == (np.float32, np.int64)


def test_the_order_of_a_list_is_that_of_the_columns(tmp_path):
    assert read(tmp_path, columns="x: [b, a]")["x"].tolist() == [[2.5, 1], [40, -3], [0.5, 5]]


def test_arrays_of_an_npz_file_are_put_side_by_side_as_well(tmp_path):
    np.savez(tmp_path / "held.npz", a=np.arange(3.0), b=np.ones(3), y=np.arange(3))
    assert read(tmp_path, source="npz")["x"].tolist() == [[0, 1], [1, 1], [2, 1]]


def test_what_pythons_own_writer_wrote_is_read_back_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 2)) * 10.0 ** np.arange(-25, 25)[:, None]
    with (tmp_path / "held.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("a", "b", "y"), *((a, b, 1) for a, b in values)])
    held = read(tmp_path, (tmp_path / "held.csv").read_bytes())
    np.testing.assert_array_equal(held["x"], values.astype(np.float32))


@pytest.mark.parametrize(
    "text", ["\ufeff" + ROWS, ROWS.replace("\n", "\r\n"), ROWS.replace("\n", "\n\n"), ROWS.rstrip()]
)
def test_marks_line_ends_and_empty_lines_change_nothing(tmp_path, text):
    assert read(tmp_path, text)["x"].tolist() == [[1, 2.5], [-3, 40], [5, 0.5]]


def test_nan_is_a_number(tmp_path):
    assert np.isnan(read(tmp_path, "a,b,y\nnan,1,0\n")["x"][0, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,y\n1,2,0\n1,two,0\n", "held.csv:3: expected a number in the column 'b', found 'two'"),
        ("a,b,y\n1,2,0\n1, ,0\n", "held.csv:3: expected a number in the column 'b', found an empty cell"),
        ("a,b,y\n1,1_000,0\n", "held.csv:2: expected a number in the column 'b', found '1_000'"),
        ('a,b,y,t\n1,2,0,"two\nlines"\n1,x,0,t\n', "held.csv:4: expected a number in the column 'b'"),
        ("a,b,y\n1,2,0\n\n1,2\n", "held.csv:4: the header names 3 columns, found 2 cells"),
        ("1,2,0\n3,4,1\n", "held.csv:1: expected the names of the columns, found the numbers 1, 2, 0"),
        ("", "held.csv' is empty"),
        (b"a,b,y\n\xff\xfe,1,2\n", "held.csv' is not a table of text"),
        ('a,b,y\n"1,2,0\n', "held.csv' is not a table of text"),
        ("a;b;y\n1;2;0\n", "the source has no 'a' for the input 'x'"),
        ("a,b,b,y\n1,2,2,0\n", "has 2 columns 'b'"),
        ("a,b,y\n", "the source has no samples"),
        ("a,b,y\n1,2,0.5\n", "the source gives 'y' as float64, the spec declares int64"),
    ],
)
def test_a_broken_table_is_told_with_its_line(tmp_path, text, message):
    assert message in refusal(tmp_path, text)


def test_a_missing_column_is_told_with_what_there_is(tmp_path):
    text = refusal(tmp_path, columns="x: [a, c]")
    assert "GS223" in text
    assert "no 'c' for the input 'x'" in text
    assert "it offers: a, b, place, y" in text


def test_one_column_is_no_table(tmp_path):
    text = refusal(tmp_path, columns="x: a")
    assert "the source gives 'x' as [batch], the spec declares [batch, 2]" in text


def test_arrays_of_different_shapes_do_not_stand_side_by_side(tmp_path):
    np.savez(tmp_path / "held.npz", a=np.arange(3.0), b=np.ones(4), y=np.arange(3))
    assert "the columns of 'x' have different shapes (a: [3], b: [4])" in refusal(tmp_path, source="npz")


def test_a_list_of_columns_needs_a_file():
    text = SPEC.format(source="npz", columns="x: [image, image]")
    with pytest.raises(SpecError, match=r"GS229.*`digits` gives each input as one array, found a list of 2"):
        load(text.replace("source: npz, path: held.npz", "source: digits"))


def test_a_missing_file_is_told(tmp_path):
    spec = load(SPEC.format(source="csv", columns="x: [a, b]"))
    with pytest.raises(SpecError, match=r"GS221.*cannot read .*held.csv': no such file"):
        open_data(spec, "train", seed=0, directory=tmp_path)
