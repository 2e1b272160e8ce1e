"""`stepgraph run` by several processes: the files of one process, and one message where something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

from runtime.checkpoints import Checkpoint, read_checkpoint
from runtime.state import Array
from tests.processes.launcher import LINE, run_all, write

pytestmark = [pytest.mark.xdist_group("runs of processes"), pytest.mark.needs("torch")]  # one worker starts them

STREAM = LINE.replace("source: npz, path: line.npz, batch: 7, shuffle: true", "class: sources:Stream, batch: 7")
NUMBERED = LINE.replace("source: npz, path: line.npz", "class: sources:Numbered")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run by one process, to compare others with."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    train(folder, 1)
    return folder


def train(folder: Path, count: int, *options: str) -> None:
    """Let so many processes train to the end."""
    for ended in run_all(folder, *[(*options, "--allow", "sources")] * count):
        assert ended.code == 0, ended.output


def read(folder: Path, step: int) -> Checkpoint:
    return read_checkpoint(folder / "out" / "checkpoints" / f"step-{step}")


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in (folder / "out").rglob("*"))


def find_gap(one: Array, other: Array) -> float:
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).max(initial=0))


def check_equal(folder: Path, whole: Path) -> None:
    """Assert that two runs have the same files, with the same numbers."""
    assert list_files(folder) == list_files(whole)
    for step in (4, 8, 12, 14):
        found, expected = read(folder, step), read(whole, step)
        assert found.arrays.keys() == expected.arrays.keys()
        for name, array in expected.arrays.items():
            assert find_gap(found.arrays[name], array) < 1e-12, (step, name)
        for section in ("counters", "data"):
            assert found.sections[section] == expected.sections[section]
    found, expected = (
        [json.loads(line) for line in (each / "out" / "metrics.jsonl").read_text().splitlines()]
        for each in (folder, whole)
    )
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert all(abs(row[name] - other[name]) < 1e-12 for name in row.keys() - {"time"})


def test_a_run_of_two_processes_has_the_files_of_one(whole: Path, tmp_path: Path) -> None:
    write(tmp_path)
    train(tmp_path, 2)
    check_equal(tmp_path, whole)
    outputs = [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)]
    assert "step 14/14" in outputs[0]
    assert outputs[1] == ""  # the first shows the run


@pytest.mark.parametrize("text", [STREAM, NUMBERED], ids=["batches", "samples"])
def test_sources_of_the_users_are_split(tmp_path: Path, text: str) -> None:
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        write(folder, text)
        train(folder, count)
    check_equal(tmp_path / "2", tmp_path / "1")


def test_a_run_goes_on_with_any_number_of_processes(whole: Path, tmp_path: Path) -> None:
    write(tmp_path)
    train(tmp_path, 2, "--steps", "4")  # in the middle of a window
    train(tmp_path, 1, "--steps", "8", "--resume")
    train(tmp_path, 3, "--steps", "14", "--resume")
    found, expected = read(tmp_path, 14), read(whole, 14)
    assert all(find_gap(found.arrays[name], array) < 1e-12 for name, array in expected.arrays.items())


def train_in_vain(folder: Path, text: str, *options: tuple[str, ...]) -> str:
    """Return what processes print together that fail."""
    write(folder, text)
    ended = run_all(folder, *options)
    assert all(each.code for each in ended), ended
    return "\n".join(each.output for each in ended)


FAILING = LINE.replace("source: npz, path: line.npz", "class: sources:Failing, args: {how: HOW}").replace(
    "timeout: 60", "timeout: 2"
)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", ["error[GS226]: data.train, epoch 2, batch 1: the source raised OSError: no such picture"]),
        ("dies", ["error[GS259]", "waited for the other processes in vain", "without an answer: rank 1"]),
        ("hangs", ["error[GS259]", "waited for the other processes in vain", "without an answer: rank 1"]),
    ],
)
def test_a_process_that_fails_ends_all_with_one_message(tmp_path: Path, how: str, said: list[str]) -> None:
    write(tmp_path, FAILING.replace("HOW", how))

    def end_what_hangs(started: list[BaseProcess]) -> None:
        """Do as a launcher does: ask the others to end once one has."""
        started[0].join(60)
        if how == "hangs":
            os.kill(started[1].pid or 0, signal.SIGTERM)

    began = time.monotonic()
    ended = run_all(tmp_path, *[("--allow", "sources")] * 2, meanwhile=end_what_hangs)
    assert time.monotonic() - began < 50  # it would sleep for a minute
    printed = "\n".join(each.output for each in ended)
    assert all(each.code for each in ended)
    assert printed.count("error[") == 1
    assert printed.count("1 error") == 1
    assert all(text in printed for text in said)
    assert f"on rank {1 if how == 'raises' else 0} of 2" in printed
    assert "Traceback" not in printed
    assert read(tmp_path, 4).arrays  # whole
