"""The rows of several processes together are the batches of one, and positions count whole batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphspec import SpecError, load
from runtime.data import open_feed
from runtime.data.share import Share
from runtime.train.together import digest_data

SPEC = """
graphspec: 1
name: shared
inputs: {x: {shape: [2, batch]}, y: {shape: [batch]}, z: {shape: [3]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: y}
  loss: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: loss}
data: {train: {DATA}}
"""
NUMBERED = "source: npz, path: y.npz, batch: 4, shuffle: true, drop_last: false"
STREAM = "class: shared_source:Stream, batch: 4, drop_last: false"
SOURCE = """
import numpy as np


class Stream:
    def __iter__(self):
        for begin in range(0, 10, 4):
            y = np.arange(begin, min(begin + 4, 10), dtype=np.float32)
            yield {"x": np.stack([y, -y]), "y": y, "z": np.float32([1, 2, 3])}
"""


def read(folder: Path, data: str, count: int) -> list[list[dict[str, np.ndarray]]]:
    """Return for each process what it gets in two epochs."""
    (folder / "shared_source.py").write_text(SOURCE)
    np.savez(folder / "y.npz", y=np.arange(10, dtype=np.float32))
    text = SPEC.replace("DATA", data)
    if "npz" in data:
        text = text.replace("x: {shape: [2, batch]}, ", "").replace(", z: {shape: [3]}", "")
    found = []
    for rank in range(count):
        feed = open_feed(
            load(text),
            "train",
            seed=3,
            allow=["shared_source"],
            directory=folder,
            share=Share(rank=rank, count=count),
        )
        found.append([])
        while feed.epoch < 2:
            before = feed.position
            batch = feed.next()
            if batch is not None:
                assert feed.rows(batch) == feed.position.samples - before.samples  # of all processes
                found[-1].append({name: np.asarray(value) for name, value in batch.items()})
    return found


@pytest.mark.parametrize(("data", "axes"), [(NUMBERED, {"y": 0}), (STREAM, {"x": 1, "y": 0})])
def test_the_parts_are_the_batches_of_one_process_the_first_ones_larger(tmp_path, data, axes):
    (whole,), parts = read(tmp_path, data, 1), read(tmp_path, data, 2)
    assert [len(batch["y"]) for batch in whole] == [4, 4, 2] * 2
    for number, batch in enumerate(whole):
        for name, axis in axes.items():
            together = np.concatenate([part[number][name] for part in parts], axis)
            np.testing.assert_array_equal(together, batch[name])
        if "z" in batch:
            assert all((part[number]["z"] == batch["z"]).all() for part in parts)


def test_what_does_not_divide_is_split_into_parts_that_differ_by_one(tmp_path):
    parts = read(tmp_path, NUMBERED.replace("batch: 4", "batch: 5"), 3)
    assert [[len(batch["y"]) for batch in part] for part in parts] == [[2] * 4, [2] * 4, [1] * 4]


def test_a_last_batch_that_is_too_small_is_refused_before_the_first(tmp_path):
    with pytest.raises(SpecError, match=r"GS227.*a batch of 2 rows is too small for 3 processes.*needs a row"):
        read(tmp_path, NUMBERED, 3)
    with pytest.raises(SpecError, match=r"GS227.*data\.train, epoch 1, batch 3.*a batch of 2 rows is too small for 3"):
        read(tmp_path, STREAM, 3)


def test_data_of_the_same_size_with_other_numbers_are_told_apart(tmp_path):
    found = set()
    for last in (1.0, 2.0, 1.0):
        np.savez(tmp_path / "y.npz", y=np.float32([0, 1, 2, 3, last]))
        text = SPEC.replace("DATA", NUMBERED).replace("x: {shape: [2, batch]}, ", "").replace(", z: {shape: [3]}", "")
        found.add(digest_data(open_feed(load(text), "train", seed=0, directory=tmp_path)))
    assert len(found) == 2
