"""Writing a checkpoint: what is in its two files, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from graphspec.diagnostics import SpecError
from runtime.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from tests.runtime.checkpoints.contents import content_at, same

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


def write(folder, arrays=None, **sections):
    write_checkpoint(folder, Checkpoint(arrays=arrays or {}, sections=sections))
    return read_checkpoint(folder)


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_every_type_come_back_bit_for_bit(tmp_path, dtype):
    raw = np.random.default_rng(0).integers(0, 256, size=48, dtype=np.uint8)
    array = (raw % 2).astype(bool) if dtype == "bool" else raw.view(dtype)
    read = write(tmp_path / "step-1", {"a": array, "none": array[:0], "one": array[0].reshape(())})
    assert {name: found.tobytes() for name, found in read.arrays.items()} == {
        "a": array.tobytes(),
        "none": b"",
        "one": array[:1].tobytes(),
    }
    assert {found.dtype for found in read.arrays.values()} == {array.dtype}
    assert [found.shape for found in read.arrays.values()] == [array.shape, (0,), ()]


def test_arrays_in_another_order_of_memory_or_bytes_come_back_with_their_values(tmp_path):
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    read = write(tmp_path / "step-1", {"turned": turned, "big": turned.astype(">f4"), "every": turned[::2]})
    np.testing.assert_array_equal(read.arrays["turned"], [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(read.arrays["big"], [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(read.arrays["every"], [[0, 3], [2, 5]])


def test_arrays_that_were_read_may_be_written_to(tmp_path):
    read = write(tmp_path / "step-1", {"a": np.zeros(3)})
    read.arrays["a"][:] = 1


@pytest.mark.parametrize(
    "value",
    [0.1, 1e-323, -0.0, 1.7976931348623157e308, 2**127 + 1, -(2**64), True, None, "é\ud800\n", [], {}, [[1, 1.0]]],
)
def test_plain_values_come_back_exactly(tmp_path, value):
    read = write(tmp_path / "step-1", loop={"value": value})
    assert repr(read.sections["loop"]) == repr({"value": value})


def test_the_files_say_what_they_hold_to_other_tools(tmp_path):
    made = content_at(30)
    size = write_checkpoint(tmp_path / "step-30", made)
    folder = tmp_path / "step-30"
    assert sorted(file.name for file in folder.iterdir()) == ["manifest.json", "state.safetensors"]
    assert size == sum(file.stat().st_size for file in folder.iterdir())
    state, manifest = (folder / "state.safetensors").read_bytes(), json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256(state).hexdigest()
    assert manifest["state"] == {"file": "state.safetensors", "bytes": len(state), "sha256": digest}
    assert manifest["tensors"]["models.net.0.weight"] == {"shape": [257, 3], "dtype": "float32"}
    assert (manifest["checkpoint"], manifest["sections"]) == (1, made.sections)
    assert manifest["versions"]["numpy"] == np.__version__
    assert set(load_file(folder / "state.safetensors")) == set(made.arrays)


def test_the_checksum_of_the_manifest_follows_its_documentation(tmp_path):
    write_checkpoint(tmp_path / "step-30", content_at(30))
    manifest = json.loads((tmp_path / "step-30" / "manifest.json").read_text())
    checksum = manifest.pop("checksum")
    assert checksum == hashlib.sha256(json.dumps(manifest, separators=(",", ":")).encode("ascii")).hexdigest()


def test_a_checkpoint_of_the_same_step_is_replaced_as_a_whole(tmp_path):
    write_checkpoint(tmp_path / "step-5", content_at(1))
    (tmp_path / "step-5" / "other").write_text("")
    write_checkpoint(tmp_path / "step-5", content_at(5))
    assert same(read_checkpoint(tmp_path / "step-5"), content_at(5))
    assert sorted(file.name for file in (tmp_path / "step-5").iterdir()) == ["manifest.json", "state.safetensors"]
    assert os.listdir(tmp_path) == ["step-5"]


def test_folders_on_the_way_are_made(tmp_path):
    write_checkpoint(tmp_path / "a" / "b" / "step-5", content_at(5))
    assert same(read_checkpoint(tmp_path / "a" / "b" / "step-5"), content_at(5))


def test_others_may_read_it_as_any_new_folder(tmp_path):
    (tmp_path / "plain").mkdir()
    write_checkpoint(tmp_path / "step-5", content_at(5))
    assert (tmp_path / "step-5").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "object", "U3", "datetime64[s]", "longdouble"])
def test_arrays_that_it_cannot_hold_are_named(tmp_path, dtype):
    with pytest.raises(SpecError, match=r"GS234.*step-5': 'models\.a' has the type \w+.*and a checkpoint holds bool"):
        write(tmp_path / "step-5", {"models.a": np.zeros(2, dtype)})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["__metadata__", "a\udc00"])
def test_names_that_it_cannot_hold_are_refused(tmp_path, name):
    with pytest.raises(SpecError, match=r"GS234.*no array may be named"):
        write(tmp_path / "step-5", {name: np.zeros(2)})


DEEP = []
for _ in range(100):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), r"loop\.x is nan"),
        ([1, float("-inf")], r"loop\.x\.1 is -inf"),
        (np.float32(1), r"loop\.x is of the type float32"),
        ((1, 2), r"loop\.x is of the type tuple"),
        ({1: 2}, r"loop\.x has the key 1"),
        (1 << 5000, r"loop\.x is a whole number of more than 4096 bits"),
        (DEEP, r"loop\.x[.0]* is nested too deeply"),
    ],
)
def test_plain_values_that_json_lacks_are_named(tmp_path, value, told):
    with pytest.raises(SpecError, match=f"GS234.*{told}"):
        write(tmp_path / "step-5", loop={"x": value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taken", ["file", "notes"])
def test_what_is_no_checkpoint_is_never_replaced(tmp_path, taken):
    if taken == "file":
        (tmp_path / "step-5").write_text("mine")
    else:
        (tmp_path / "step-5").mkdir()
        (tmp_path / "step-5" / "notes.txt").write_text("mine")
    with pytest.raises(
        SpecError, match=r"GS234\]: cannot write .*step-5': (file exists|a folder that is not a checkpoint)"
    ):
        write_checkpoint(tmp_path / "step-5", content_at(5))
    assert "mine" in [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]


def test_everything_is_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    events, sync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    monkeypatch.setattr(os, "rename", lambda *pair: (events.append("rename"), rename(*pair)))
    write_checkpoint(tmp_path / "step-5", content_at(5))
    making = os.path.dirname(events[0])
    assert os.path.basename(making).startswith(".step-5-")
    files = [f"{making}/state.safetensors", f"{making}/manifest.json"]
    assert events == [*files, making, "rename", str(tmp_path)]
