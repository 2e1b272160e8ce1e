"""A run whose processes are killed, and that goes on with other numbers of them, ends as if neither had happened."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.processes.hard import EXACT, LENGTH, write
from tests.processes.kills import check_rows, find_gap, has_logged, is_writing, look
from tests.processes.launcher import start_all

pytestmark = [pytest.mark.xdist_group("runs of processes"), pytest.mark.needs("torch")]  # one worker starts them


def train(
    folder: Path, count: int, *options: str, kill: int | None = None, when: Callable[[], bool] = lambda: True
) -> list[str]:
    """Let processes train, of which one may be killed at some moment; return what each has printed."""
    given = {"PAUSE": "0.01" if kill is not None else "0"}
    started: list[BaseProcess] = start_all(folder, *[("--allow", "sources", *options)] * count, given=given)
    if kill is not None:
        while not when():
            started[kill].join(0.001)
            assert started[kill].is_alive(), (folder / f"{kill}.txt").read_text()
        os.kill(started[kill].pid or 0, signal.SIGKILL)
    for rank, process in enumerate(started):
        process.join(60)
        code = 0 if kill is None else -signal.SIGKILL if rank == kill else 1
        assert process.exitcode == code, (folder / f"{rank}.txt").read_text()
    return [(folder / f"{rank}.txt").read_text() for rank in range(count)]


def check_lost(printed: list[str], rank: int) -> None:
    """Assert that the others have said once that a process is lost, and which."""
    (said,) = (each for each in printed if "error[" in each)
    assert re.findall(r"error\[(\w+)\]", said) == ["GS259"]
    named = re.search(r"without an answer: rank ([\d, ]+)\n", said)
    assert named is not None
    assert str(rank) in named[1].split(", ")  # a third one may not have noticed yet
    assert "Traceback" not in said


@pytest.mark.long  # in every run tests/processes/test_runs.py loses a process, and goes on with other numbers of them
def test_a_run_survives_kills_and_other_numbers_of_processes(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for each in (whole, broken):
        write(each, EXACT, "replicated")
    train(whole, 1)
    out, is_sharded = broken / "out", ("--set", "parallel.kind=sharded")
    written = out / "checkpoints" / "step-4"
    check_lost(train(broken, 2, *is_sharded, kill=1, when=lambda: written.exists() and is_writing(out)), 1)
    assert look(out) in (4, 8)  # the second one was being written
    train(broken, 1, "--resume", "--steps", "10")  # in the middle of a window
    check_lost(train(broken, 3, "--resume", "--steps", str(LENGTH), kill=2, when=lambda: has_logged(out, 18)), 2)
    assert look(out) in (16, 20)
    train(broken, 2, "--resume", *is_sharded)
    assert find_gap(whole / "out", out) == 0
    assert not [*check_rows(out)]
