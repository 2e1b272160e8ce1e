"""Whatever happens to a byte of a checkpoint: it is refused as a diagnostic, or read back as it was."""

from __future__ import annotations

import random

import pytest

from graphspec.diagnostics import SpecError
from runtime.checkpoints import read_checkpoint, write_checkpoint
from tests.runtime.checkpoints.contents import content_at, same

FILES = ["state.safetensors", "manifest.json"]
CODES = {"GS240", "GS241", "GS242"}


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(tmp_path / "step-10", content_at(10, size=5))
    return tmp_path / "step-10"


def outcome(folder):
    """Return the code of the error, or `same`; any other error fails the test, and so does other content."""
    try:
        read = read_checkpoint(folder)
    except SpecError as error:
        (diagnostic,) = error.diagnostics
        return diagnostic.code
    assert same(read, content_at(10, size=5))
    return "same"


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_is_seen(folder, file):
    path, chance = folder / file, random.Random(file)
    whole = path.read_bytes()
    found = set()
    for position in range(chance.randrange(2), len(whole), 2):
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        found.add(outcome(folder))
    assert found <= CODES | ({"same"} if file == "manifest.json" else set())


@pytest.mark.parametrize("file", FILES)
def test_a_cut_file_is_damaged(folder, file):
    path = folder / file
    whole = path.read_bytes()
    found = {}
    for length in {*range(0, len(whole), 3), len(whole) - 1}:
        path.write_bytes(whole[:length])
        found[length] = outcome(folder)
    if file == "manifest.json":
        assert found.pop(len(whole) - 1) == "same"  # the line break at its end says nothing
    assert set(found.values()) == {"GS241"}


@pytest.mark.parametrize("file", FILES)
def test_random_bytes_put_in_cut_out_or_exchanged_are_seen(folder, file):
    path, chance = folder / file, random.Random(file)
    whole = path.read_bytes()
    for _ in range(200):
        start, end = sorted(chance.randrange(len(whole) + 1) for _ in range(2))
        path.write_bytes(whole[:start] + chance.randbytes(chance.randrange(9)) + whole[end:])
        assert outcome(folder) in CODES or start == end
    path.write_bytes(whole)
    assert outcome(folder) == "same"


def test_files_of_two_checkpoints_do_not_mix(folder, tmp_path):
    write_checkpoint(tmp_path / "step-11", content_at(11, size=5))
    (tmp_path / "step-11" / "state.safetensors").replace(folder / "state.safetensors")
    assert outcome(folder) == "GS241"
