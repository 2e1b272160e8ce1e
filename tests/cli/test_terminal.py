"""run on a real terminal: the bar moves, and Ctrl-C ends it well."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.cli import execute

pytestmark = pytest.mark.needs("torch")

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def on_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from runtime.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    with process:
        yield process, ours
        process.kill()
    os.close(ours)


def read_until(stream: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        try:
            part = os.read(stream, 4096)
        except OSError:  # how Linux tells that the other end of a terminal is closed
            part = b""
        assert part, seen.decode()
        seen += part
    return seen


def test_ctrl_c_saves_what_was_trained(workdir):
    execute(["init", "classifier"])
    run = ("run", "classifier.yaml", "--allow", "models", "--steps", "10000000")
    with on_terminal(*run) as (process, stream):
        shown = read_until(stream, b"steps/s")
        process.send_signal(2)
        shown += read_until(stream, b"is saved")
        assert process.wait(60) == 130
    text = shown.decode()
    assert "━" in text
    assert "/10000000" in text
    (saved,) = Path("runs/classifier/checkpoints").iterdir()
    assert f"interrupted (SIGINT) after step {int(saved.name.removeprefix('step-')):,};" in text
    assert Path("runs/classifier/curves.png").exists()


def test_a_plan_on_a_terminal_says_where_its_words_are_explained(capsys):
    spec = str(ROOT / "examples" / "fgsm" / "fgsm.yaml")
    hint = "what a mark or a word means: `stepgraph explain frozen`, `stepgraph explain RETAIN`"
    with on_terminal("plan", spec) as (process, stream):
        read_until(stream, hint.encode())
        assert process.wait(60) == 0
    assert execute(["plan", spec]) == 0
    assert hint not in "".join(capsys.readouterr())


def test_an_audit_on_a_terminal_says_where_its_findings_are_explained(capsys):
    script = str(ROOT / "tests" / "audit" / "cases" / "h01_gan_one_fake.py")
    hint = "what a finding means and how to fix it: `stepgraph explain stale-read`"
    with on_terminal("audit", script) as (process, stream):
        read_until(stream, hint.encode())
        assert process.wait(60) == 1
