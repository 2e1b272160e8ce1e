"""Completion: real shells source the script that the command prints, and complete with it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.cli import main
from runtime.train.run_folder import write_record
from tests.runtime.runs.test_record import RECORD

ROOT = Path(__file__).parents[2]
SPEC = """graphspec: 1
name: two
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  output: {forward: net, inputs: x}
  error: {call: mean, inputs: output}
  learn: {update: net, loss: error}
outputs: [error]
"""


@pytest.fixture
def place(workdir: Path, monkeypatch) -> Path:
    """Make a folder with specs, runs and a home, where `stepgraph` is a command."""
    command = workdir / "bin" / "stepgraph"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m runtime.cli "$@"\n')
    command.chmod(0o755)
    for key, value in {
        "PYTHONPATH": ROOT,
        "HOME": workdir / "home",
        "PATH": f"{command.parent}:{os.environ['PATH']}",
    }.items():
        monkeypatch.setenv(key, str(value))
    for path in (
        Path("home"),
        Path("specs/more"),
        Path("runs/a/checkpoints/step-30"),
        Path("runs/b"),
        Path("runs/none"),
    ):
        path.mkdir(parents=True)
    for path in ("specs/one.yaml", "specs/two.json", "two.yaml"):
        Path(path).write_text(SPEC)
    Path("notes.txt").write_text("")
    Path("broken.yaml").write_text("a: [1\n")
    for name in ("a", "b"):
        write_record(Path("runs") / name, RECORD)
    return workdir


def shell(name: str, script: str) -> str:
    done = subprocess.run([name, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES = {
    "ex": ["explain", "export"],
    "plan two.yaml --order l": ["listed", "latest"],
    "check sp": ["specs/more/", "specs/one.yaml", "specs/two.json"],
    "fmt n": [],
    "explain two.yaml ": ["output", "error", "learn", "net"],
    "explain broken.yaml ": [],
    "explain GS10": [f"GS10{n}" for n in range(1, 10)],
    "explain stale-": ["stale-cast", "stale-read", "stale-read-unneeded", "stale-statistics", "stale-value"],
    "eval ru": ["runs/a", "runs/b", "runs/none/"],
    "run two.yaml --resume --out runs/b": ["runs/b"],
    "export runs/a --checkpoint n": ["newest"],
    "init mean": ["mean-teacher"],
}


ASKED = ("plan two.yaml --order l", "check sp", "explain broken.yaml ")
"""What a shell completes, in a process for each; the command itself is asked for the others."""


def test_bash_completes(place):
    function = "$(complete -p stepgraph | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
    lines = ["source <(stepgraph --show-completion)"]
    for words in ASKED:
        listed = " ".join(f"'{word}'" for word in words.split(" "))
        lines += [f"COMP_WORDS=(stepgraph {listed}); COMP_CWORD={len(words.split(' '))}; {function} stepgraph"]
        lines += ['echo "${COMPREPLY[*]}"']
    found = [line.split() for line in shell("bash", "\n".join(lines)).splitlines()]
    assert dict(zip(ASKED, found, strict=True)) == {words: CASES[words] for words in ASKED}


@pytest.mark.parametrize("words", [words for words in CASES if words not in ASKED])
def test_the_command_answers_what_bash_asks(place, words, monkeypatch, capsys):
    monkeypatch.setenv("_STEPGRAPH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"stepgraph {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out.split() == CASES[words]


def test_parts_of_expressions_are_not_offered(monkeypatch, capsys):
    monkeypatch.setenv("_STEPGRAPH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"stepgraph explain {ROOT}/examples/td3/td3.yaml step_")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit, match="0"):
        main()
    offered = {"step_actor", "step_actor.loss", "step_critics", "step_critics.loss"}
    assert set(capsys.readouterr().out.split()) == offered


def test_it_is_installed_for_bash(place):
    installed = shell("bash", "stepgraph --install-completion && true")  # more follows, so that bash stays its parent
    assert "bash completion installed in" in installed
    assert str(place / "home") in installed
    typed = "COMP_WORDS=(stepgraph ini); COMP_CWORD=1; _stepgraph_completion stepgraph; echo ${COMPREPLY[@]}"
    assert shell("bash", f"source ~/.bashrc; {typed}") == "init\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_what_is_typed(place):
    Path("home/.zshrc").write_text(
        "PS1='> '; autoload -Uz compinit; compinit -u; source <(stepgraph --show-completion)\n"
    )
    with Typing("zsh", "-i") as typing:
        assert typing.wait_for("> ")
        typing.type("stepgraph explain two.yaml le\t")
        assert typing.wait_for("learn")
        typing.type("\x15stepgraph ch\t")
        assert typing.wait_for("check")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(place):
    script = "stepgraph --show-completion | source; complete --do-complete 'stepgraph explain two.yaml le'"
    assert shell("fish", script).split() == ["learn"]


class Typing:
    """A shell at a terminal."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._seen = ""

    def __enter__(self):
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execvp(self._command[0], self._command)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        os.waitpid(self._pid, 0)

    def type(self, text: str) -> None:
        self._seen = ""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str, seconds: float = 30) -> bool:
        """Return whether a text is shown in time, the escapes of the terminal aside."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready, _, _ = select.select([self._terminal], [], [], 0.2)
            if ready:
                self._seen += os.read(self._terminal, 4096).decode("utf-8", "replace")
            if text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", "", self._seen):
                return True
        return False
