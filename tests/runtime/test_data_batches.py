"""Batches: which samples, in which order, in which epoch."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.data import open_data
from runtime.data.source import Stored, epoch_order

SPEC = """
graphspec: 1
name: numbers
inputs: {{x: {{shape: [batch]}}}}
ops: {{mean: {{call: mean, inputs: x}}}}
outputs: mean
data: {{{role}: {{source: npz, path: x.npz, {options}}}}}
"""


@pytest.fixture
def numbers(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(10, dtype=np.float32))

    def read(options: str, *, role: str = "train", seed: int = 0):
        spec = load(SPEC.format(role=role, options=options))
        return open_data(spec, role, seed=seed, directory=tmp_path)

    return read


def rows(batches, epoch: int = 0) -> list[list[float]]:
    return [batch["x"].tolist() for batch in batches.epoch(epoch)]


def test_without_shuffling_the_order_is_that_of_the_file(numbers):
    assert rows(numbers("batch: 5")) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_training_leaves_out_a_batch_that_is_not_full(numbers):
    assert rows(numbers("batch: 4")) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_other_sets_keep_a_batch_that_is_not_full(numbers):
    assert rows(numbers("batch: 4", role="test"))[-1] == [8, 9]


def test_what_is_done_with_the_last_batch_can_be_said(numbers):
    assert rows(numbers("batch: 4, drop_last: false"))[-1] == [8, 9]
    assert len(rows(numbers("batch: 4, drop_last: true", role="test"))) == 2


def test_a_shuffled_epoch_has_every_sample_once(numbers):
    drawn = rows(numbers("batch: 5, shuffle: true"))
    assert sorted(drawn[0] + drawn[1]) == list(range(10))
    assert drawn[0] + drawn[1] != list(range(10))


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else(numbers):
    shuffled = "batch: 5, shuffle: true"
    assert rows(numbers(shuffled, seed=1), 3) == rows(numbers(shuffled, seed=1), 3)
    assert rows(numbers(shuffled, seed=1), 3) != rows(numbers(shuffled, seed=2), 3)
    assert rows(numbers(shuffled, seed=1), 3) != rows(numbers(shuffled, seed=1), 4)


def test_a_seed_of_the_source_stands_above_the_runs(numbers):
    own = rows(numbers("batch: 5, shuffle: true, seed: 7", seed=1))
    assert own == rows(numbers("batch: 5, shuffle: true", seed=7))


def test_the_order_is_a_philox_stream_keyed_by_seed_and_epoch():
    stream = np.random.Generator(np.random.Philox(key=(9 << 64) + 5))
    assert epoch_order(20, shuffle=True, seed=5, epoch=9).tolist() == stream.permutation(20).tolist()


def test_a_negative_seed_is_a_seed():
    assert sorted(epoch_order(6, shuffle=True, seed=-1, epoch=0)) == list(range(6))


def test_a_batch_larger_than_the_set_is_told(numbers):
    with pytest.raises(SpecError, match=r"GS227.*10 samples do not fill one batch of 64"):
        rows(numbers("batch: 64"))


def test_a_spec_without_training_data_is_told():
    spec = load(SPEC.format(role="test", options="batch: 2"))
    with pytest.raises(SpecError, match=r"GS220.*it has no `data.train`"):
        open_data(spec, "train", seed=0)


@pytest.mark.parametrize("bytes_ahead", [1, 40, 10**6])
def test_stored_samples_are_split_into_copies_of_their_rows(bytes_ahead, monkeypatch):
    monkeypatch.setattr("runtime.data.source._AHEAD", bytes_ahead)
    stored = Stored(arrays={"x": np.arange(22.0).reshape(11, 2), "y": np.arange(11)}, length=11)
    order = np.random.default_rng(0).permutation(11)
    batches = list(stored.split(order, 4))
    assert [len(batch["y"]) for batch in batches] == [4, 4, 3]
    for name, array in stored.arrays.items():
        assert np.concatenate([batch[name] for batch in batches]).tolist() == array[order].tolist()
        assert all(batch[name].flags.c_contiguous and batch[name].flags.writeable for batch in batches)
        batches[0][name][:] = -1
        assert (array >= 0).all()
        assert (batches[1][name] >= 0).all()
