"""Scenes that need a process of their own, in which limits and users are real."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from graphspec.diagnostics import SpecError
from runtime.checkpoints import read_checkpoint, write_checkpoint
from tests.runtime.checkpoints.contents import content_at

ROOT = Path(__file__).resolve().parents[3]


def run_scene(name, folder, module="processes"):
    """Run a function of a module beside this one in a new process and return what it prints."""
    with tempfile.TemporaryDirectory() as spare:
        command = [sys.executable, "-m", f"tests.runtime.checkpoints.{module}", name, str(folder)]
        environment = {**os.environ, "TMPDIR": spare}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tell(act, *arguments):
    """Print the error of an act."""
    try:
        act(*arguments)
    except SpecError as error:
        print(error)
    else:
        print("no error")


def become_nobody():
    """Go on as a user without rights; what Python loads late it loads before, from where that user may not look."""
    write_checkpoint(Path(os.environ["TMPDIR"]) / "warm", content_at(1))
    if os.geteuid() == 0:
        os.setuid(65534)


def limit_files(folder):
    """Replace a checkpoint by one whose state is larger than a file may be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    write_checkpoint(folder / "step-1", content_at(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    tell(write_checkpoint, folder / "step-1", content_at(1, size=100_000))


def write_where_denied(folder):
    """Write a new checkpoint, replace one, and write into a new folder, all in a folder of another user."""
    become_nobody()
    for place in (folder / "step-2", folder / "step-1", folder / "new" / "step-1"):
        tell(write_checkpoint, place, content_at(2))


def read_where_denied(folder):
    """Read a checkpoint of another user."""
    become_nobody()
    tell(read_checkpoint, folder / "step-1")


def read_with_little_memory(folder):
    """Read a checkpoint of 16 GiB in 8."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
    tell(read_checkpoint, folder)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
