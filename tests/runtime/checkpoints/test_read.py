"""Reading a checkpoint: what is missing, damaged, forged or foreign is told with the way out."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from graphspec.diagnostics import SpecError
from runtime.checkpoints import read_checkpoint, write_checkpoint
from tests.runtime.checkpoints.contents import content_at, forge, same


@pytest.fixture
def folder(tmp_path):
    """Return the second of two checkpoints."""
    for step in (9, 10):
        write_checkpoint(tmp_path / "checkpoints" / f"step-{step}", content_at(step))
    return tmp_path / "checkpoints" / "step-10"


def forge_state(folder, content):
    (folder / "state.safetensors").write_bytes(content)
    state = {"file": "state.safetensors", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(folder, lambda manifest: manifest.update(state=state))


def refused(folder, match):
    with pytest.raises(SpecError, match=match) as caught:
        read_checkpoint(folder)
    return str(caught.value)


def test_a_missing_one_is_told_with_those_that_are_there(folder):
    told = refused(folder.with_name("step-7"), "GS240.*there is no checkpoint '.*step-7'")
    assert "checkpoints' holds step-9, step-10" in told
    assert f"name {str(folder)!r}" in told


def test_the_folder_of_a_run_is_told_which_checkpoints_it_has(folder):
    for named in (folder.parent, folder.parent.parent):
        assert "holds step-9, step-10" in refused(named, f"GS240.*{named.name}' is not a checkpoint")


def test_where_there_are_none_it_is_told_when_there_will_be(tmp_path):
    assert "writes its first checkpoint" in refused(tmp_path / "nothing", "GS240")


def test_of_many_checkpoints_the_last_are_named(tmp_path):
    for step in range(8):
        (tmp_path / f"step-{step}").mkdir()
    told = refused(tmp_path / "step-100", "GS240")
    assert "holds 3 others, step-3, step-4, step-5, step-6, step-7" in told


@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
def test_a_missing_file_is_damage(folder, file):
    (folder / file).unlink()
    told = refused(folder, f"GS241.*step-10' is damaged: it has no {file}")
    assert "remove that folder and resume from step-9" in told


def test_without_one_before_it_the_run_starts_again(folder):
    shutil.rmtree(folder.with_name("step-9"))
    (folder / "state.safetensors").write_bytes(b"")
    assert "no checkpoint before it is left, so start the run again" in refused(folder, "GS241")


def test_the_one_before_is_found_by_number(folder):
    shutil.copytree(folder, folder.with_name("step-100"))
    (folder.with_name("step-100") / "state.safetensors").write_bytes(b"")
    assert "resume from step-10;" in refused(folder.with_name("step-100"), "GS241")


def test_a_truncated_state_is_told_with_its_size(folder):
    path = folder / "state.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused(folder, rf"GS241.*state.safetensors has {len(whole) - 1:,} bytes of {len(whole):,}")


def test_a_flipped_bit_of_the_state_is_seen(folder):
    path = folder / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused(folder, "GS241.*state.safetensors does not agree with its checksum")


def test_an_edited_number_of_the_manifest_is_seen(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"train": 10', '"train": 11'))
    refused(folder, "GS241.*manifest.json: its content does not agree with its checksum")


def test_spaces_in_the_manifest_change_nothing(folder):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    assert same(read_checkpoint(folder), content_at(10))


@pytest.mark.parametrize("name", ["../step-9/state.safetensors", "..", ".", "", "/etc/hostname", "a\\b", "C:x", "a\0b"])
def test_a_file_out_of_the_folder_is_never_opened(folder, name):
    forge(folder, lambda manifest: manifest["state"].update(file=name))
    refused(folder, "GS241.*names the file .*, which is not in the folder")


def test_a_link_out_of_the_folder_is_not_followed(folder):
    (folder / "state.safetensors").unlink()
    (folder / "state.safetensors").symlink_to("../step-9/state.safetensors")
    refused(folder, "GS241.*names the file 'state.safetensors', which is not in the folder")


def test_a_checkpoint_may_be_reached_through_a_link(folder, tmp_path):
    (tmp_path / "last").symlink_to(folder)
    assert same(read_checkpoint(tmp_path / "last"), content_at(10))


@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
def test_a_pipe_in_place_of_a_file_does_not_hang(folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)
    refused(folder, f"GS241.*it has no {file}")


def test_other_arrays_than_the_manifest_says_are_seen(folder):
    arrays = dict(content_at(10).arrays)
    count = arrays.pop("models.net.1.count")
    forge_state(folder, save(arrays))
    refused(folder, "GS241.*the array 'models.net.1.count' is missing")
    forge_state(folder, save({**arrays, "models.net.1.count": count.astype(np.int32)}))
    refused(folder, r"GS241.*'models.net.1.count' is int32\[\], and manifest.json says int64\[\]")
    forge_state(folder, save({**arrays, "models.net.1.count": count, "more": count}))
    refused(folder, "GS241.*the array 'more' is not in manifest.json")


HEADERS = [
    b"",
    b"\xff" * 8,
    struct.pack("<Q", 2**40) + b"{}",
    struct.pack("<Q", 2) + b"[]",
    pickle.dumps(print),
    *(
        struct.pack("<Q", len(header)) + header
        for header in (
            b'{"a":{"dtype":"F64","shape":[1125899906842624],"data_offsets":[0,9007199254740992]}}',
            b'{"a":{"dtype":"F64","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}',
            b'{"a":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}}',
            b'{"a":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}',
            b'{"a":' * 3000,
        )
    ),
]


@pytest.mark.parametrize("content", HEADERS, ids=range(len(HEADERS)))
def test_a_forged_state_with_the_right_checksum_is_no_raw_error(folder, content):
    forge_state(folder, content)
    refused(folder, "GS241.*state.safetensors: it is not a safetensors file")


MANIFESTS = [
    (b"", "GS241.*manifest.json: it is not JSON"),
    (b"\x80\x04", "GS241.*it is not JSON"),
    (b"[1]", "GS241.*it is not a JSON object"),
    (b"[" * 100_000, "GS241.*it is nested too deeply"),
    (b'{"checkpoint": NaN}', "GS241.*it is not JSON"),
    (b'{"checkpoint": 1e999}', "GS241.*has content that no checkpoint has"),
    (b'{"checkpoint": ' + b"9" * 9999 + b"}", "GS241.*it is not JSON"),
    (b'{"checkpoint": 1}', "GS241.*does not agree with its checksum"),
    (b'{"checkpoint": 1, "checksum": 5}', "GS241.*does not agree with its checksum"),
    (b'{"model": "gpt"}', "GS242.*not a checkpoint that can be read: its manifest.json is not that of a checkpoint"),
]


@pytest.mark.parametrize(("content", "told"), MANIFESTS, ids=range(len(MANIFESTS)))
def test_a_manifest_that_is_none_is_no_raw_error(folder, content, told):
    (folder / "manifest.json").write_bytes(content)
    refused(folder, told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": 5}, "'state': input should be a valid dictionary"),
        ({"state": {}}, "'state.file': field required"),
        (
            {"state": {"file": "x", "bytes": -1, "sha256": ""}},
            "'state.bytes': input should be greater than or equal to 0",
        ),
        ({"tensors": {"a": {"shape": [1.5], "dtype": "int8"}}}, "'tensors.a.shape.0': input should be a valid integer"),
        (
            {"tensors": {"a": {"shape": [True], "dtype": "int8"}}},
            "'tensors.a.shape.0': input should be a valid integer",
        ),
        ({"sections": []}, "'sections': input should be a valid dictionary"),
        ({"versions": {"a": 1}}, "'versions.a': input should be a valid string"),
        ({"checkpoint": "1"}, "'checkpoint': input should be a valid integer"),
    ],
)
def test_a_forged_field_is_no_raw_error(folder, change, told):
    forge(folder, lambda manifest: manifest.update(change))
    refused(folder, f"GS241.*manifest.json: {told}")


def test_a_newer_format_says_what_is_needed(folder):
    forge(folder, lambda manifest: manifest.update(checkpoint=3))
    told = refused(folder, "GS242.*it has format 3, and this version of stepgraph reads up to format 2")
    assert "needs a newer stepgraph" in told


def test_a_folder_of_others_is_told_apart(tmp_path):
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5" / "model.pt").write_bytes(b"PK")
    refused(tmp_path / "step-5", "GS242.*step-5' is not a checkpoint that can be read: it has no manifest.json")
