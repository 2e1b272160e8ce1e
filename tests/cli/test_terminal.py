"""run on a real terminal: the bar moves, and Ctrl-C ends it well."""

from __future__ import annotations

import os
import pty
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from runtime.cli import execute
from tests.resilience import processes

pytestmark = pytest.mark.needs("torch")

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def on_terminal(folder: Path, *arguments: str) -> Iterator[tuple[processes.Process, int]]:
    """Yield a process that runs a command on a terminal, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    process = processes.start(
        [*arguments], folder, folder / "output.txt", partial(processes.attach, os.ttyname(theirs))
    )
    yield process, ours
    process.kill()
    process.join()
    os.close(theirs)
    os.close(ours)


def read_until(process: processes.Process, stream: int, text: bytes) -> bytes:
    """Return what a process has printed up to a text."""
    seen = b""
    while text not in seen:
        is_ready, _, _ = select.select([stream], [], [], 0.2)
        part = os.read(stream, 4096) if is_ready else b""
        assert part or process.is_alive(), seen.decode()
        seen += part
    return seen


def end(process: processes.Process) -> int | None:
    """Return the exit code of a process."""
    process.join(60)
    return process.exitcode


def test_ctrl_c_saves_what_was_trained(workdir):
    execute(["init", "classifier"])
    run = ("run", "classifier.yaml", "--allow", "models", "--steps", "10000000")
    with on_terminal(workdir, *run) as (process, stream):
        shown = read_until(process, stream, b"steps/s")
        os.kill(process.pid, signal.SIGINT)
        shown += read_until(process, stream, b"is saved")
        assert end(process) == 130
    text = shown.decode()
    assert "━" in text
    assert "/10000000" in text
    (saved,) = Path("runs/classifier/checkpoints").iterdir()
    assert f"interrupted (SIGINT) after step {int(saved.name.removeprefix('step-')):,};" in text
    assert Path("runs/classifier/curves.png").exists()


def test_a_plan_on_a_terminal_says_where_its_words_are_explained(workdir, capsys):
    spec = str(ROOT / "examples" / "fgsm" / "fgsm.yaml")
    hint = "what a mark or a word means: `stepgraph explain frozen`, `stepgraph explain RETAIN`"
    with on_terminal(workdir, "plan", spec) as (process, stream):
        read_until(process, stream, hint.encode())
        assert end(process) == 0
    assert execute(["plan", spec]) == 0
    assert hint not in "".join(capsys.readouterr())


def test_an_audit_on_a_terminal_says_where_its_findings_are_explained(workdir):
    script = str(ROOT / "tests" / "audit" / "cases" / "h01_gan_one_fake.py")
    hint = "what a finding means and how to fix it: `stepgraph explain stale-read`"
    with on_terminal(workdir, "audit", script) as (process, stream):
        read_until(process, stream, hint.encode())
        assert end(process) == 1
