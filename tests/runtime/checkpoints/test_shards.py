"""Checkpoints that several processes write together are read as one, or refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from runtime.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from runtime.checkpoints.shards import write_shards
from runtime.state import Part
from tests.runtime.checkpoints.contents import forge

COUNT = 3
WHOLE = {
    "models.net.weight": np.arange(20.0).reshape(5, 4),
    "models.net.bias": np.arange(2, dtype=np.float32),  # the last process has no row of it
    "models.net.scale": np.array(0.5),
}
SECTIONS = {"counters": {"steps": {"train": 5}}}


class Threads:
    """What processes exchange, among threads."""

    def __init__(self):
        self.barrier, self.held = threading.Barrier(COUNT, timeout=20), [None] * COUNT

    def exchange(self, rank, value):
        self.held[rank] = value
        self.barrier.wait()
        found = list(self.held)
        self.barrier.wait()
        return found


class One:
    """One of some threads, in the place of a process."""

    def __init__(self, threads, rank):
        self.threads, self.rank, self.count = threads, rank, COUNT

    def share(self, make):
        return self.threads.exchange(self.rank, None if self.rank else make())[0]

    def gather(self, value):
        return self.threads.exchange(self.rank, value)


def write(folder, sections=SECTIONS):
    """Let all write: two rows of the weight each, as far as there are some, and one of the bias."""
    threads = Threads()

    def work(rank):
        arrays, parts = {"models.net.scale": WHOLE["models.net.scale"]}, {}
        for name, height in (("models.net.weight", 2), ("models.net.bias", 1)):
            begin = min(rank * height, len(WHOLE[name]))
            arrays[name] = WHOLE[name][begin : begin + height]
            parts[name] = Part(begin=begin, shape=WHOLE[name].shape)
        write_shards(folder, Checkpoint(arrays=arrays, sections=sections), parts, One(threads, rank))

    with ThreadPoolExecutor(COUNT) as pool:
        for done in [pool.submit(work, rank) for rank in range(COUNT)]:
            done.result()


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "step-5")
    return tmp_path / "step-5"


def test_what_processes_wrote_is_read_as_what_one_writes(folder, tmp_path):
    write_checkpoint(tmp_path / "whole", Checkpoint(arrays=WHOLE, sections=SECTIONS))
    found, expected = read_checkpoint(folder), read_checkpoint(tmp_path / "whole")
    assert found.sections == expected.sections
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert np.array_equal(found.arrays[name], array)


def test_it_replaces_an_older_one_and_leaves_no_rubbish(folder):
    write(folder, {"counters": {"steps": {"train": 6}}})
    assert read_checkpoint(folder).sections["counters"] == {"steps": {"train": 6}}
    assert list(folder.parent.iterdir()) == [folder]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(SpecError, match="GS234"):
        write(tmp_path / "step-5", {"counters": {"loss": float("nan")}})
    assert list(tmp_path.iterdir()) == []


def refused(folder, match):
    with pytest.raises(SpecError, match=f"GS241.*{match}"):
        read_checkpoint(folder)


def test_a_missing_file_is_told(folder):
    (folder / "shard-00002-of-00003.safetensors").unlink()
    refused(folder, "it has no shard-00002-of-00003.safetensors")


def test_a_flipped_bit_is_told(folder):
    path = folder / "shard-00001-of-00003.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused(folder, "shard-00001-of-00003.safetensors does not agree with its checksum")


@pytest.mark.parametrize("choose", [lambda files: files[1:], lambda files: [*files, files[0]]])
def test_rows_that_are_missing_or_there_twice_are_told(folder, choose):
    forge(folder, lambda manifest: manifest.update(shards=choose(manifest["shards"])))
    refused(folder, "rows of the array 'models.net.bias' are missing or duplicated")


def test_a_file_has_the_arrays_that_the_manifest_says(folder):
    forge(folder, lambda manifest: manifest["shards"][0]["rows"].pop("models.net.bias"))
    refused(folder, "shard-00001-of-00003.safetensors has other arrays than manifest.json says")
