"""The checkpoint folder: what is in it, and that it is never half written."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from runtime.checkpoint import Origin, save_checkpoint

ORIGIN = Origin(name="gan", text="graphspec: 1\n", step=30, seed=4, backend="torch", device="cpu")
ARRAYS = {
    "models.net.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "models.net.1.count": np.array(7, dtype=np.int64),
    "optimizers.net.step": np.array([], dtype=np.float64),
}


def test_the_weights_come_back_as_they_were(tmp_path):
    save_checkpoint(tmp_path / "checkpoint", ARRAYS, ORIGIN)
    read = load_file(tmp_path / "checkpoint" / "weights.safetensors")
    assert set(read) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (read[name].shape, read[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(read[name], array)


def test_the_manifest_describes_the_weights(tmp_path):
    size = save_checkpoint(tmp_path / "checkpoint", ARRAYS, ORIGIN)
    weights = (tmp_path / "checkpoint" / "weights.safetensors").read_bytes()
    manifest = json.loads((tmp_path / "checkpoint" / "manifest.json").read_text())
    assert size == len(weights)
    assert manifest["weights"]["sha256"] == hashlib.sha256(weights).hexdigest()
    assert manifest["spec_sha256"] == hashlib.sha256(b"graphspec: 1\n").hexdigest()
    assert (manifest["name"], manifest["step"], manifest["seed"]) == ("gan", 30, 4)
    assert manifest["tensors"]["models.net.0.weight"] == {"shape": [3, 2], "dtype": "float32"}
    assert manifest["versions"]["numpy"] == np.__version__


def test_an_older_checkpoint_is_replaced_as_a_whole(tmp_path):
    save_checkpoint(tmp_path / "checkpoint", ARRAYS, ORIGIN)
    (tmp_path / "checkpoint" / "other").write_text("")
    save_checkpoint(tmp_path / "checkpoint", {"a": np.zeros(2)}, ORIGIN)
    assert sorted(file.name for file in (tmp_path / "checkpoint").iterdir()) == ["manifest.json", "weights.safetensors"]
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_a_failure_leaves_the_older_checkpoint_and_no_rubbish(tmp_path):
    save_checkpoint(tmp_path / "checkpoint", ARRAYS, ORIGIN)
    before = (tmp_path / "checkpoint" / "weights.safetensors").read_bytes()
    with pytest.raises(Exception, match=r"(?i)dtype|object|type"):
        save_checkpoint(tmp_path / "checkpoint", {"bad": np.array([print])}, ORIGIN)
    assert (tmp_path / "checkpoint" / "weights.safetensors").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_others_may_read_it_as_any_new_folder(tmp_path):
    (tmp_path / "plain").mkdir()
    save_checkpoint(tmp_path / "checkpoint", ARRAYS, ORIGIN)
    assert (tmp_path / "checkpoint").stat().st_mode == (tmp_path / "plain").stat().st_mode
