"""A process that is gone is told as such outside of steps, too: before the first one, and where others make a state."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from graphspec import SpecError
from runtime.checkpoints import Checkpoint
from runtime.checkpoints.shards import write_shards
from runtime.interrupt import AskedToEnd, terminable
from runtime.problems import problem
from runtime.processes import LOST, Processes, Silent
from runtime.state import Part
from runtime.train.run import speechless
from tests.processes.launcher import start_all, write


@pytest.mark.needs("torch")
def test_a_state_of_which_a_process_has_a_part_needs_that_process(tmp_path: Path) -> None:
    from tests.processes.pairs import lose_one  # imports PyTorch
    from tests.resilience.processes import call

    ended = call(lose_one, tmp_path)
    assert ended.code == 0, ended.output
    assert "error[GS259]: the other processes did not give their parts of the state" in ended.output


def lose(found: None) -> list[None]:
    """Be told that a process is lost."""
    raise problem(LOST, "all processes did not answer")


@pytest.mark.parametrize(
    ("gather", "code"),
    [(lose, LOST), (lambda _: [None] * 3, "GS234")],
    ids=["the first has noticed that the third is lost", "another machine"],
)
def test_a_folder_that_the_first_process_has_removed_is_no_problem_of_the_disk(
    tmp_path: Path, gather: Callable[[None], list[None]], code: str
) -> None:
    second = SimpleNamespace(rank=1, count=3, share=lambda _: ".step-4-00000000.new", gather=gather)
    rows = Checkpoint(arrays={"models.net.0.weight": np.eye(3)}, sections={})
    parts = {"models.net.0.weight": Part(begin=3, shape=(9, 3))}
    with pytest.raises(SpecError, match=rf"error\[{code}\]"):
        write_shards(tmp_path / "step-4", rows, parts, cast("Processes", second))


@pytest.mark.xdist_group("runs of processes")
@pytest.mark.needs("torch")
def test_a_process_that_waits_for_one_that_never_comes_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    write(tmp_path)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    first, second = start_all(tmp_path, (), (), given={"MASTER_PORT": str(port)})
    os.kill(second.pid or 0, signal.SIGKILL)
    while not is_open(port):  # it has begun to wait
        first.join(0.05)
        assert first.is_alive()
    first.join(0.5)
    os.kill(first.pid or 0, signal.SIGTERM)
    first.join(30)  # it would wait for a minute
    assert first.exitcode == -signal.SIGTERM
    assert (tmp_path / "0.txt").read_text() == ""  # the launcher says which process it has lost


def is_open(port: int) -> bool:
    """Tell whether a process listens."""
    with socket.socket() as tried:
        return tried.connect_ex(("localhost", port)) == 0


@pytest.mark.parametrize(("count", "raised"), [("1", AskedToEnd), ("2", Silent)])
def test_one_of_several_processes_that_is_asked_to_end_says_nothing(
    monkeypatch: pytest.MonkeyPatch, count: str, raised: type[BaseException]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", count)
    with pytest.raises(raised), speechless(), terminable():
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.needs("torch")
def test_the_launcher_names_the_process_that_was_lost_and_not_those_that_it_ended_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    from runtime.backends.torch import group

    ended = {rank: ProcessFailure(rank, 1, code, "") for rank, code in ((1, -signal.SIGKILL), (0, 130))}

    def start(*words: str) -> None:
        """Lose the second process, and end the first."""
        raise ChildFailedError("", ended)

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(group, "elastic_launch", lambda *_: start)
    with pytest.raises(SpecError, match=r"error\[GS259\]: rank 1 of 2 has ended by SIGKILL"):
        group.launch(2, ["run", "line.yaml"])
    monkeypatch.setattr(Path, "rglob", lambda *_: [Path("error.json")])  # a third one has noticed, and said why
    assert group.launch(2, ["run", "line.yaml"]) == 1
