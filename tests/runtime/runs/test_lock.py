"""The lock of a run's folder: one process at a time, and none that is dead."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from runtime.train.run_folder import Lock

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def holding(folder, *words):
    """Let another process hold the lock; yield it with the line that it prints then."""
    command = [sys.executable, "-m", "tests.runtime.holder", str(folder), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
        try:
            yield other, other.stdout.readline().strip()
        finally:
            other.kill()


def test_a_folder_in_use_by_another_process_is_told_with_its_number_and_host(tmp_path):
    with holding(tmp_path) as (other, _), pytest.raises(SpecError, match="GS244") as caught, Lock(tmp_path):
        pass
    told = f"'{tmp_path}' is in use by process {other.pid} on {socket.gethostname()}, since 20"
    assert told in str(caught.value)
    assert "wait until it has ended, or end it" in str(caught.value)


def test_a_killed_process_holds_nothing(tmp_path):
    with holding(tmp_path) as (other, line):
        assert line == "held"
        other.send_signal(signal.SIGKILL)
        assert other.wait() == -signal.SIGKILL
        with Lock(tmp_path):
            pass


def test_a_process_that_ends_leaves_the_folder_to_others(tmp_path):
    with holding(tmp_path) as (other, _):
        other.stdin.close()
        assert other.wait() == 0
        with Lock(tmp_path):
            assert (tmp_path / "lock").read_text().startswith(f" {os.getpid()} {socket.gethostname()} 20")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_worker_that_outlives_the_killed_process_does_not_hold_the_lock(tmp_path):
    with holding(tmp_path, "fork") as (other, child):
        other.kill()
        other.wait()
        os.kill(int(child), 0)  # it is alive
        try:
            with Lock(tmp_path):
                pass
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_it_is_held_within_one_process_too_and_let_go_of_at_the_end(tmp_path):
    with Lock(tmp_path), pytest.raises(SpecError, match=f"GS244.*in use by process {os.getpid()}"), Lock(tmp_path):
        pass
    with Lock(tmp_path):
        pass


def test_an_error_lets_it_go(tmp_path):
    with pytest.raises(RuntimeError), Lock(tmp_path):
        raise RuntimeError
    with Lock(tmp_path):
        pass


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b" 1 2 3 4"])
def test_a_holder_that_has_not_signed_is_another_process(tmp_path, text):
    with Lock(tmp_path):
        (tmp_path / "lock").write_bytes(text)
        with pytest.raises(SpecError, match=r"GS244.*is in use by another process"), Lock(tmp_path):
            pass


def test_a_folder_that_is_gone_is_told(tmp_path):
    with (
        pytest.raises(SpecError, match=r"GS234.*cannot write '.*/lock': no such file or directory"),
        Lock(tmp_path / "x"),
    ):
        pass
