"""The record of a run: read back as it was written, and never half of one."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from graphspec.diagnostics import SpecError
from runtime.train.run_folder import Lengths, Record, read_record, write_record

RECORD = Record(
    name="gan",
    versions={"python": "3.11.7", "torch": "2.13.0+cpu"},
    seed=2**63 - 1,
    device="cpu",
    backend="torch",
    order="fewest",
    steps=3000,
    spec="graphspec: 1\nname: émile  # ☃\n",
    overrides=("vars.lr=1e-3", "outputs.0=d_loss"),
    plan="ab12",
    source="def step(batch):\n    return {}\n",
    allow=("zoo",),
    spec_path="../gan.yaml",
    pace=Lengths(epoch=22, run=3000),
)


def refused(folder, match):
    with pytest.raises(SpecError, match=match) as caught:
        read_record(folder)
    return str(caught.value)


def test_it_is_read_back_as_it_was_written(tmp_path):
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path) == RECORD
    assert os.listdir(tmp_path) == ["run.json"]


def test_other_tools_can_read_it(tmp_path):
    write_record(tmp_path, RECORD)
    content = json.loads((tmp_path / "run.json").read_text())
    assert (content.pop("run"), len(content.pop("checksum"))) == (1, 64)
    assert content == {name: _plain(getattr(RECORD, name)) for name in Record.model_fields}


def _plain(value):
    if isinstance(value, Lengths):
        return vars(value)
    return list(value) if isinstance(value, tuple) else value


def test_a_second_one_replaces_the_first_as_a_whole(tmp_path):
    write_record(tmp_path, RECORD)
    write_record(tmp_path, RECORD.model_copy(update={"steps": 6000}))
    assert read_record(tmp_path).steps == 6000


def test_what_is_no_folder_of_a_run_is_told(tmp_path):
    told = refused(tmp_path, r"GS243.*is not the folder of a run: it has no run\.json")
    assert "name the folder of a run" in told
    refused(tmp_path / "nothing", "GS243.*is not the folder of a run")


def outcome(folder):
    """Return the code of the error, or what is read."""
    try:
        return read_record(folder)
    except SpecError as error:
        return error.diagnostics[0].code


def test_a_file_cut_anywhere_is_refused(tmp_path):
    write_record(tmp_path, RECORD)
    whole = (tmp_path / "run.json").read_bytes()
    for length in range(0, len(whole) - 1, 3):
        (tmp_path / "run.json").write_bytes(whole[:length])
        assert outcome(tmp_path) == "GS243"


def test_a_flipped_bit_is_refused_or_says_nothing(tmp_path):
    write_record(tmp_path, RECORD)
    whole = (tmp_path / "run.json").read_bytes()
    for position in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        (tmp_path / "run.json").write_bytes(changed)
        assert outcome(tmp_path) in ("GS243", RECORD)


def test_an_edited_number_is_seen(tmp_path):
    write_record(tmp_path, RECORD)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"steps": 3000', '"steps": 9000'))
    told = refused(tmp_path, "GS243.*its content does not agree with its checksum")
    assert "restore the run.json that the run wrote, or start a new run" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run": 2}, "it has format 2, and this version of stepgraph reads format 1"),
        ({"seed": "0"}, "'seed': input should be a valid integer"),
        ({"allow": "zoo"}, "'allow': input should be a valid tuple"),
        ({"overrides": [1]}, "'overrides.0': input should be a valid string"),
        ({"versions": {"torch": 2}}, "'versions.torch': input should be a valid string"),
        ({"spec": None}, "'spec': input should be a valid string"),
        ({"pace": {"epoch": -1}}, "'pace.epoch': input should be greater than or equal to 0"),
    ],
)
def test_a_field_of_another_type_is_told(tmp_path, change, told):
    write_record(tmp_path, RECORD)
    path = tmp_path / "run.json"
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != "checksum"} | change
    checksum = hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps({**content, "checksum": checksum}))
    refused(tmp_path, f"GS243.*{told}")


def test_a_folder_that_is_gone_is_told_when_writing(tmp_path):
    with pytest.raises(SpecError, match=r"GS234.*cannot write '.*run\.json': no such file or directory"):
        write_record(tmp_path / "gone", RECORD)
