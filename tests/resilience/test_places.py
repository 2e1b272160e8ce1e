"""Folders, disks, checkpoints and readers that fail: errors say what is wrong, and once repaired the run resumes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from runtime.train.logs import JsonLines, Row
from runtime.train.plots import write_png
from tests.resilience import processes
from tests.resilience.conditions import (
    become_nobody,
    deafen,
    differences,
    fill_at_curves,
    go_on,
    make,
    refuse,
    run,
    steps,
)

pytestmark = [pytest.mark.xdist_group("conditions"), pytest.mark.needs("torch")]

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def disk(tmp_path):
    """Return a folder with a spec and, in it, an empty disk of one megabyte."""
    place = make(tmp_path, ("steps: 24", "steps: 24\n  log: [jsonl, csv, tensorboard]")) / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if not ROOT or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root and the right to mount")
    yield tmp_path
    subprocess.run(["umount", str(place)], check=True)


def repair(folder):
    """Make room on the disk."""
    (folder / "disk" / "other").unlink()


FILLED = (
    (1, "metrics.jsonl", ()),
    (26, "metrics.csv", (5,)),
    (46, "checkpoints/step-15", (6, 10)),
)
"""Before which sample since the run went on the disk is filled, what is written next, and the checkpoints then."""


def test_a_full_disk_is_told_and_the_run_goes_on_each_time_there_is_room(whole, disk):
    for number, (sample, name, left) in enumerate(FILLED):
        told = refuse(disk, *["--resume"][:number], out="disk/out", trouble=f"train {sample} fill")
        assert f"error[GS234]: cannot write 'disk/out/{name}': no space left on device" in told
        assert "make room on that disk" in told
        assert steps(disk / "disk" / "out") == left
        repair(disk)
    go_on(disk, out="disk/out")
    assert differences(whole, disk / "disk" / "out") == []


def test_a_disk_that_is_full_at_the_start_is_told_and_nothing_is_left(whole, disk):
    told = refuse(disk, out="disk/out", trouble="build 1 fill")
    assert "error[GS234]: cannot write 'disk/out/run.json': no space left on device" in told
    assert os.listdir(disk / "disk") == ["other"]
    repair(disk)
    assert run(disk, out="disk/out").code == 0
    assert differences(whole, disk / "disk" / "out") == []


def test_a_full_disk_at_the_curves_leaves_all_that_was_trained(whole, disk):
    told = refuse(disk, out="disk/out", before=fill_at_curves)
    assert "error[GS234]: cannot write 'disk/out/curves.png': no space left on device" in told
    assert not (disk / "disk" / "out" / "curves.png").exists()
    assert differences(whole, disk / "disk" / "out") == []
    repair(disk)
    assert "0 steps in" in go_on(disk, out="disk/out")
    assert (disk / "disk" / "out" / "curves.png").exists()


def test_a_row_that_only_half_fits_is_left_out(disk):
    log = JsonLines(disk / "disk" / "metrics.jsonl")
    for step in range(1, 100):
        log.add(Row(step=step, seconds=0.0, values={"loss": 1 / 3}))
    size = 4096 - log.path.stat().st_size % 4096
    (disk / "disk" / "other").write_bytes(b"x" * (os.statvfs(disk / "disk").f_bavail * 4096))
    before = log.path.read_text()
    with pytest.raises(SpecError, match=r"GS234.*metrics.jsonl': no space left on device"):
        log.add(Row(step=100, seconds=0.0, values={"a" * size: 1.0}))
    assert log.path.read_text() == before


def test_a_full_disk_keeps_the_picture_that_was_there(disk):
    path = disk / "disk" / "samples.png"
    write_png(path, np.zeros((4, 4, 3), np.uint8))
    before = path.read_bytes()
    (disk / "disk" / "other").write_bytes(b"x" * (os.statvfs(disk / "disk").f_bavail * 4096))
    with pytest.raises(SpecError, match=r"GS234.*samples.png': no space left on device"):
        write_png(path, np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8))
    assert (path.read_bytes(), sorted(os.listdir(path.parent))) == (before, ["other", "samples.png"])


@pytest.fixture
def reachable():
    """Return a folder with a spec that every user reaches, which pytest's own are not."""
    if not ROOT:
        pytest.skip("becoming another user needs root")
    with tempfile.TemporaryDirectory() as place:
        yield make(Path(place))


def test_a_folder_that_may_not_be_written_is_told(reachable):
    reachable.chmod(0o755)
    told = refuse(reachable, before=become_nobody)
    assert "error[GS234]: cannot write 'out': permission denied = help: check the permissions" in told
    assert not (reachable / "out").exists()


def test_a_run_of_another_user_is_told(whole, reachable):
    shutil.copytree(whole, reachable / "out")
    before = sorted(os.listdir(reachable / "out"))
    reachable.chmod(0o755)
    told = refuse(reachable, "--resume", before=become_nobody)
    assert "error[GS234]: cannot write 'out/lock': permission denied" in told
    assert sorted(os.listdir(reachable / "out")) == before


def test_a_folder_that_is_made_unwritable_on_the_way_is_told_and_the_run_goes_on_later(whole, reachable):
    reachable.chmod(0o777)
    told = refuse(reachable, trouble="train 61 deny", before=become_nobody)
    assert "error[GS234]: cannot write 'out/checkpoints/step-15': permission denied" in told
    assert steps(reachable / "out") == (6, 10)
    (reachable / "out" / "checkpoints").chmod(0o755)
    go_on(reachable, before=become_nobody)
    assert differences(whole, reachable / "out") == []


def test_a_device_that_is_not_there_is_told_before_anything_is_written(tmp_path):
    told = refuse(make(tmp_path), "--device", "cuda:7")
    assert "error[GS207]: device 'cuda:7' is not available" in told
    assert "cpu" in told
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_by_another_run_is_refused_and_that_run_is_not_disturbed(whole, tmp_path):
    make(tmp_path)
    (tmp_path / "trouble.txt").write_text("train 66 wait")
    arguments = ["run", "spec.yaml", "--out", "out", "--plain", "--allow", "trouble", "--allow", "torch"]
    first = processes.start(arguments, tmp_path, tmp_path / "first.txt")
    while not (tmp_path / "waiting").exists():
        first.join(0.01)
    told = processes.run([*arguments, "--resume"], tmp_path)
    (tmp_path / "waiting").unlink()
    first.join(60)
    assert (told.code, first.exitcode) == (1, 0)
    assert f"error[GS244]: 'out' is in use by process {first.pid} on " in told.output
    assert differences(whole, tmp_path / "out") == []


def test_a_reader_that_goes_away_ends_the_run_with_everything_saved(whole, tmp_path):
    ended = run(make(tmp_path), trouble="train 66 deafen")
    assert (ended.code, "error" in ended.output) == (1, False)
    assert max(steps(tmp_path / "out")) == 16  # what it printed to nobody
    go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_a_reader_that_was_never_there_leaves_nothing(tmp_path):
    ended = run(make(tmp_path), before=deafen)
    assert ended.code == 1
    assert not (tmp_path / "out").exists()
