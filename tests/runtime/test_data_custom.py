"""A user's own source: the three forms it may have, and what is said where it has none."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_data

SPEC = """
graphspec: 1
name: own
inputs: {{x: {{shape: [batch, 2]}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{train: {{class: "my_data:{name}", batch: 2, {options}}}}}
"""
SOURCE = """
import numpy as np

class Numbered:
    def __init__(self, count=5): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, i): return {"x": np.array([i, -i], dtype=np.float32), "more": i}

class Streamed:
    def __iter__(self):
        for start in (0, 2, 4):
            rows = np.arange(start, min(start + 2, 5), dtype=np.float64)
            yield {"x": np.stack([rows, -rows], axis=1)}

def whole(): return {"x": np.array([[i, -i] for i in range(5)], dtype=np.float32)}
def once(): return iter(Streamed())
def lists(): return [[1, 2], [3, 4]]
def nothing(): return 7
def large(): return [{"x": np.zeros((3, 2), np.float32)}].__iter__()
def fails(): raise OSError("no disk")
three = 3

class Pairs(Numbered):
    def __getitem__(self, i): return i, np.array([i, -i], dtype=np.float32)

class PairedBatches(Streamed):
    def __iter__(self): return ([rows["x"][:, 0], rows["x"]] for rows in super().__iter__())

class Late(Numbered):
    def __getitem__(self, i):
        if i == 3: raise ValueError("sample 3 is bad")
        return super().__getitem__(i)

class Ragged(Numbered):
    def __getitem__(self, i): return {"x": np.zeros(2 + i, np.float32)}

class Changing(Numbered):
    def __getitem__(self, i): return {"x": np.zeros(2)} if i else {"y": np.zeros(2)}

class Empty(Streamed):
    def __iter__(self): return iter(())
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "my_data.py").write_text(SOURCE)

    def read(name: str, options: str = ""):
        spec = load(SPEC.format(name=name, options=options))
        return open_data(spec, "train", seed=3, allow=["my_data"], directory=tmp_path)

    return read


def firsts(batches, epoch: int = 0) -> list[list[float]]:
    return [batch["x"][:, 0].tolist() for batch in batches.epoch(epoch)]


def refusal(read, name: str, options: str = "") -> str:
    with pytest.raises(SpecError, match="GS2") as caught:
        firsts(read(name, options))
    return str(caught.value)


@pytest.mark.parametrize("name", ["Numbered", "Streamed", "whole"])
def test_all_three_forms_give_the_same_batches(read, name):
    assert firsts(read(name)) == [[0, 1], [2, 3]]
    assert firsts(read(name, "drop_last: false"))[-1] == [4]


@pytest.mark.parametrize("name", ["Pairs", "PairedBatches"])
def test_tuples_and_lists_are_read_by_the_positions_that_are_told(read, name):
    assert firsts(read(name, "columns: {x: 1}")) == [[0, 1], [2, 3]]
    with pytest.raises(SpecError, match=r"GS223.*the source has no '2' for the input 'x'"):
        firsts(read(name, "columns: {x: 2}"))


@pytest.mark.parametrize("name", ["Pairs", "PairedBatches"])
def test_no_order_of_tuples_and_lists_is_guessed(read, name):
    text = refusal(read, name)
    assert "of 2, and nothing says which inputs they are" in text
    assert "as in `columns: {x: 0}`" in text


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["TensorDataset", "DataLoader"])
def test_data_sets_and_loaders_of_torch_are_read(tmp_path, name):
    lines = ["import torch", "from torch.utils.data import DataLoader, TensorDataset"]
    lines.append("made = TensorDataset(torch.tensor([[i, -i] for i in range(5)]).float(), torch.arange(5))")
    lines.append("def give(): return made" if name == "TensorDataset" else "def give(): return DataLoader(made, 2)")
    (tmp_path / "torch_data.py").write_text("\n".join(lines))
    text = SPEC.format(name="give", options="columns: {x: 0, y: 1}").replace("my_data", "torch_data")
    text = text.replace("[batch, 2]}}", "[batch, 2]}, y: {shape: [batch], dtype: int64}}")
    spec = load(
        text.replace("inputs: x}}", "inputs: x}, last: {call: mean, inputs: y}}").replace(
            "outputs: mean", "outputs: [mean, last]"
        )
    )
    batches = [*open_data(spec, "train", seed=3, allow=["torch_data"], directory=tmp_path).epoch(0)]
    assert [np.asarray(each["x"])[:, 1].tolist() for each in batches] == [[0, -1], [-2, -3]]
    assert [np.asarray(each["y"]).tolist() for each in batches] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("name", ["Numbered", "Streamed", "whole"])
def test_arrays_are_made_to_fit_the_inputs(read, name):
    batch = next(read(name).epoch(0))
    assert set(batch) == {"x"}
    assert batch["x"].dtype == np.float32


@pytest.mark.parametrize("name", ["Numbered", "whole"])
def test_samples_by_number_are_shuffled_alike(read, name):
    order = np.random.Generator(np.random.Philox(key=3)).permutation(5)
    assert firsts(read(name, "shuffle: true")) == [order[:2].tolist(), order[2:4].tolist()]


def test_arguments_reach_the_class(read):
    assert firsts(read("Numbered", "args: {count: 7}"))[-1] == [4, 5]


def test_a_stream_starts_again_for_each_epoch(read):
    batches = read("Streamed")
    assert [firsts(batches, epoch) for epoch in (0, 1)] == [[[0, 1], [2, 3]]] * 2


def test_an_iterator_that_runs_once_is_told_in_the_second_epoch(read):
    batches = read("once")
    firsts(batches, 0)
    with pytest.raises(SpecError, match=r"GS225.*no batches for a second pass"):
        firsts(batches, 1)


def test_shuffling_a_stream_is_told(read):
    assert "`shuffle` needs samples by number" in refusal(read, "Streamed", "shuffle: true")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "an object of type 'int' is not a source of data"),
        ("lists", "the source gave a list of 2, and nothing says which inputs they are"),
        ("large", "the source gave a batch of 3 samples, not 2"),
        ("Ragged", "the samples of the source do not fit together"),
        ("Changing", "do not all have the same names"),
        ("Empty", "the source has no full batch"),
    ],
)
def test_what_has_none_of_the_forms_is_told(read, name, message):
    assert message in refusal(read, name)


def test_an_error_in_a_sample_shows_the_users_line(read):
    text = refusal(read, "Late")
    assert "GS226" in text
    assert "the source raised ValueError: sample 3 is bad" in text
    assert "my_data.py" in text
    assert "in __getitem__: if i == 3: raise" in text


def test_an_error_while_it_is_made_shows_the_users_line(read):
    assert "raised OSError: no disk" in refusal(read, "fails")


def test_wrong_arguments_are_told(read):
    assert "unexpected keyword argument 'size'" in refusal(read, "Numbered", "args: {size: 3}")


def test_a_missing_array_is_told_with_what_there_is(read):
    text = refusal(read, "Numbered", "columns: {x: pixels}")
    assert "no 'pixels' for the input 'x'" in text
    assert "it offers: more, x" in text


def test_the_package_must_be_allowed(read, tmp_path):
    spec = load(SPEC.format(name="Numbered", options=""))
    with pytest.raises(SpecError, match=r"GS201.*package 'my_data' is not allowed"):
        open_data(spec, "train", seed=0, directory=tmp_path)
