"""Exit codes: 0 done, 1 a problem, 2 wrong usage, 130 interrupted; and never a traceback of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import runtime.cli
from runtime.cli import execute

ROOT = Path(__file__).resolve().parents[2]
SPEC = "graphspec: 1\nname: tiny\ninputs: {x: {shape: [batch]}}\nops: {m: {call: mean, inputs: x}}\noutputs: [m]\n"


def stepgraph(*arguments: str, **settings) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from runtime.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    # In the background of a shell Ctrl-C is ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, env=environment, text=True, **pipes)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check"],
        ["chek", "a.yaml"],
        ["check", "a.yaml", "--oder", "fewest"],
        ["check", "a.yaml", "--order", "best"],
        ["plan", "a.yaml", "--mode", "training"],
        ["run", "a.yaml", "--steps", "0"],
        ["run", "a.yaml", "--allow", "not a package"],
        ["init", "vae"],
    ],
)
def test_wrong_usage_is_2(capsys, arguments):
    assert execute(arguments) == 2
    captured = capsys.readouterr()
    assert "Usage: stepgraph" in captured.err + captured.out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["run", "--help"], ["schema"]])
def test_done_is_0(capsys, arguments):
    assert execute(arguments) == 0


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"graphspec: 1\n\tname: a\n", b"[" * 50_000, b"a: 1\na: 2\n"])
def test_a_problem_in_a_document_is_1(workdir, capsys, content):
    Path("a.yaml").write_bytes(content)
    assert execute(["check", "a.yaml"]) == 1
    captured = capsys.readouterr().err
    assert "error[GS0" in captured
    assert "Traceback" not in captured


@pytest.mark.parametrize("command", ["check", "plan", "emit", "run"])
def test_a_missing_file_is_1(workdir, capsys, command):
    assert execute([command, "nothing.yaml"]) == 1
    assert "error[GS016]" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line(workdir, capsys, monkeypatch):
    monkeypatch.delenv("STEPGRAPH_DEBUG", raising=False)
    monkeypatch.setattr("runtime.cli.make_app", lambda: 1 // 0)
    assert execute(["check", "a.yaml"]) == 1
    captured = capsys.readouterr().err
    assert captured.startswith("stepgraph: internal error, please report it: ZeroDivisionError: ")
    assert "Traceback" not in captured


def test_debug_shows_the_traceback_of_an_error_of_ours(workdir, capsys, monkeypatch):
    monkeypatch.setenv("STEPGRAPH_DEBUG", "1")
    monkeypatch.setattr("runtime.cli.make_app", lambda: 1 // 0)
    assert execute(["check", "a.yaml"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_the_debug_option_asks_for_tracebacks(workdir, monkeypatch):
    monkeypatch.setenv("STEPGRAPH_DEBUG", "0")
    execute(["--debug", "schema", "-o", "schema.json"])
    assert os.environ["STEPGRAPH_DEBUG"] == "1"


def test_interrupted_is_130(workdir, capsys, monkeypatch):
    def press() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime.cli, "make_app", press)
    assert execute(["check", "a.yaml"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_reader_that_goes_away_is_no_error_message(workdir):
    Path("a.yaml").write_text(SPEC)
    with stepgraph("plan", "a.yaml", "--format", "json") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_errors_are_coloured_on_terminals_only(workdir, capsys, monkeypatch):
    Path("a.yaml").write_text("")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    execute(["check", "a.yaml"])
    assert "\x1b[" not in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    execute(["check", "a.yaml"])
    assert "\x1b[" in capsys.readouterr().err


def test_names_that_the_terminal_cannot_show_are_no_reason_to_fail(workdir):
    Path("é.yaml").write_text(SPEC, encoding="utf-8")
    command = [sys.executable, "-c", "from runtime.cli import main; main()", "check", "é.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout.startswith(b"?.yaml: ok")


def test_ctrl_c_of_a_waiting_command_is_130(workdir):
    os.mkfifo("slow.yaml")
    with stepgraph("check", "slow.yaml") as process, Path("slow.yaml").open("w"):
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("content", [SPEC, SPEC.replace("mean", "meen")])
def test_the_package_runs_as_the_command(workdir, content):
    Path("a.yaml").write_text(content)
    ours = subprocess.run(
        [sys.executable, "-m", "runtime", "check", "a.yaml"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    installed = stepgraph("check", "a.yaml")
    told, complained = installed.communicate()
    assert (ours.returncode, ours.stdout, ours.stderr) == (installed.returncode, told, complained)
    assert "a.yaml: ok" in told or "error[GS110]" in complained
