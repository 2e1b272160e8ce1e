"""Files of arrays: what is read, what is converted, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_data

SPEC = """
graphspec: 1
name: arrays
inputs: {{x: {{shape: [batch, 2]}}, y: {{shape: [batch], dtype: {dtype}}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{source: npz, path: held.npz, batch: 3, {options}}}}}
"""
X = np.arange(6, dtype=np.float32).reshape(3, 2)
Y = np.arange(3)


def read(folder, options: str = "", dtype: str = "int64"):
    spec = load(SPEC.format(options=options, dtype=dtype))
    return next(open_data(spec, "train", seed=0, directory=folder).epoch(0))


def refusal(folder, **settings) -> str:
    with pytest.raises(SpecError, match="GS2") as caught:
        read(folder, **settings)
    return str(caught.value)


def test_arrays_are_the_inputs_of_their_names(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=Y, other=np.zeros(7))
    batch = read(tmp_path)
    assert set(batch) == {"x", "y"}
    np.testing.assert_array_equal(batch["x"], X)


def test_columns_map_inputs_to_arrays(tmp_path):
    np.savez(tmp_path / "held.npz", points=X, y=Y)
    np.testing.assert_array_equal(read(tmp_path, "columns: {x: points}")["x"], X)


def test_a_path_starts_at_the_directory_of_the_spec(tmp_path, workdir):
    (tmp_path / "sub").mkdir()
    np.savez(tmp_path / "sub" / "held.npz", x=X, y=Y)
    assert "no such file" in refusal(tmp_path)
    assert len(read(tmp_path / "sub")["y"]) == 3


def test_numbers_are_converted_where_nothing_is_lost_but_precision(tmp_path):
    np.savez(tmp_path / "held.npz", x=X.astype(np.float64), y=Y.astype(np.uint8))
    batch = read(tmp_path)
    assert (batch["x"].dtype, batch["y"].dtype) == (np.float32, np.int64)


def test_a_float_is_never_made_an_integer(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=Y + 0.5)
    assert "the source gives 'y' as float64, the spec declares int64" in refusal(tmp_path)


def test_an_integer_that_does_not_fit_is_refused(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=Y + 254)
    assert "GS228" in refusal(tmp_path, dtype="uint8")
    np.savez(tmp_path / "held.npz", x=X, y=Y + 253)
    assert read(tmp_path, dtype="uint8")["y"].tolist() == [253, 254, 255]


def test_a_missing_array_is_told_with_what_there_is(tmp_path):
    np.savez(tmp_path / "held.npz", xs=X, y=Y)
    text = refusal(tmp_path)
    assert "GS223" in text
    assert "no 'x' for the input 'x'; did you mean 'xs'?" in text
    assert "it offers: xs, y" in text


def test_columns_of_an_input_that_is_not_declared_are_told(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=Y)
    assert "names the input 'xx', which is not declared" in refusal(tmp_path, options="columns: {xx: x}")


def test_unequal_lengths_are_told(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=np.arange(4))
    assert "different numbers of samples (x: 3, y: 4)" in refusal(tmp_path)


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=np.array([print, print, print], dtype=object))
    text = refusal(tmp_path)
    assert "GS222" in text
    assert "unpickling them can run any code" in text


@pytest.mark.parametrize("y", [np.array(["a", "b", "c"]), np.array(3), np.array([1j, 2j, 3j])])
def test_only_numbers_with_one_row_per_sample_are_read(tmp_path, y):
    np.savez(tmp_path / "held.npz", x=X, y=y)
    assert "GS222" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not arrays", b"PK\x03\x04 cut short", b"\x80\x04\x95pickle"])
def test_a_file_of_another_kind_is_told(tmp_path, content):
    (tmp_path / "held.npz").write_bytes(content)
    assert "is not a file of arrays" in refusal(tmp_path)


def test_a_single_array_without_a_name_is_told(tmp_path):
    with (tmp_path / "held.npz").open("wb") as file:
        np.save(file, X)
    assert "holds one array without a name" in refusal(tmp_path)


def test_a_directory_is_told(tmp_path):
    (tmp_path / "held.npz").mkdir()
    assert "is a directory" in refusal(tmp_path)


def test_options_of_other_sources_are_told(tmp_path):
    np.savez(tmp_path / "held.npz", x=X, y=Y)
    text = refusal(tmp_path, options="split: test")
    assert "a source `npz` has no `split`; it belongs to `digits`" in text


def test_the_message_points_to_the_field_of_the_spec(tmp_path):
    text = refusal(tmp_path)
    assert "data: {train: {source: npz, path: held.npz" in text
    assert "^^^^^^^^" in text
