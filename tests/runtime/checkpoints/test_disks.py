"""Disks that are full, limited, closed or read-only: nothing half done is left, and the reason is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from runtime.checkpoints import Store, read_checkpoint, write_checkpoint
from tests.runtime.checkpoints.contents import content_at, forge, same
from tests.runtime.checkpoints.processes import run_scene

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def disk(tmp_path):
    """Return an empty disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if not ROOT or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root and the right to mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_full_disk_leaves_the_older_checkpoints_and_no_rubbish(disk):
    store = Store(disk, keep=3)
    store.save(content_at(1), 1)
    before = listing(disk)
    with pytest.raises(SpecError, match=r"GS234\]: cannot write '.*/step-2': no space left on device") as caught:
        store.save(content_at(2, size=100_000), 2)
    assert "make room on that disk" in str(caught.value)
    assert (listing(disk), store.steps()) == (before, (1,))
    assert same(read_checkpoint(store.path(1)), content_at(1))


def test_a_full_disk_keeps_the_checkpoint_that_was_to_be_replaced(disk):
    write_checkpoint(disk / "step-1", content_at(1))
    with pytest.raises(SpecError, match=r"GS234.*step-1': no space left on device"):
        write_checkpoint(disk / "step-1", content_at(1, size=100_000))
    assert same(read_checkpoint(disk / "step-1"), content_at(1))
    assert os.listdir(disk) == ["step-1"]


def test_with_room_again_the_next_one_is_written(disk):
    (disk / "large").write_bytes(b"x" * 1_000_000)
    with pytest.raises(SpecError, match="GS234"):
        write_checkpoint(disk / "step-1", content_at(1, size=5_000))
    (disk / "large").unlink()
    write_checkpoint(disk / "step-1", content_at(1, size=5_000))
    assert same(read_checkpoint(disk / "step-1"), content_at(1, size=5_000))


def test_a_disk_that_can_only_be_read_is_told(disk):
    Store(disk, keep=1).save(content_at(1), 1)
    Store(disk, keep=1).save(content_at(2), 2)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    store = Store(disk, keep=1)
    for act in (lambda: store.save(content_at(3), 3), store.prune):
        with pytest.raises(SpecError, match=r"GS234.*cannot write '.*step-\d': read-only file system"):
            act()
    assert same(read_checkpoint(disk / "step-1"), content_at(1))


def test_a_limit_on_the_size_of_files_leaves_nothing_behind(tmp_path):
    printed = run_scene("limit_files", tmp_path)
    assert "error[GS234]: cannot write" in printed
    assert "step-1': file too large" in printed
    assert os.listdir(tmp_path) == ["step-1"]
    assert same(read_checkpoint(tmp_path / "step-1"), content_at(1))


@pytest.fixture
def reachable():
    """Return a folder that every user reaches, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        yield Path(place)


def test_a_folder_that_may_not_be_written_is_told(reachable):
    write_checkpoint(reachable / "step-1", content_at(1))
    reachable.chmod(0o555)
    printed = run_scene("write_where_denied", reachable)
    assert printed.count(": permission denied\n") == 3
    assert "name a folder that you may write to" in printed
    assert same(read_checkpoint(reachable / "step-1"), content_at(1))
    assert listing(reachable) == ["step-1", "step-1/manifest.json", "step-1/state.safetensors"]


def test_a_file_that_may_not_be_read_is_told(reachable):
    write_checkpoint(reachable / "step-1", content_at(1))
    (reachable / "step-1" / "state.safetensors").chmod(0)
    printed = run_scene("read_where_denied", reachable)
    assert "error[GS240]: cannot read the checkpoint" in printed
    assert "permission denied" in printed
    assert "check the permissions" in printed


def test_a_state_larger_than_the_memory_is_told(tmp_path):
    write_checkpoint(tmp_path / "step-1", content_at(1))
    os.truncate(tmp_path / "step-1" / "state.safetensors", 1 << 34)
    forge(tmp_path / "step-1", lambda manifest: manifest["state"].update(bytes=1 << 34))
    assert "is damaged: it is larger than the memory" in run_scene("read_with_little_memory", tmp_path / "step-1")
