"""`stepgraph watch` in a process of its own: files are changed while it runs, and a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

SPEC = """graphspec: 1
name: watched
include: rates.yaml
inputs: {x: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: "${rate}"}}}
ops:
  y: {forward: net, inputs: x}
  learn: {update: net, loss: "mean(y**2)"}
"""


class Watched:
    """A process of `stepgraph watch`, and what it has printed."""

    def __init__(self):
        command = [sys.executable, "-m", "runtime.cli", "watch", "spec.yaml"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # jobs in the background ignore it
        )
        self.text = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.text += line

    def close(self):
        """End the process, however it is."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def wait(self, times):
        """Wait until it has shown the spec so often; return what it has printed since the time before."""
        end = time.monotonic() + 60
        while self.text.count("Ctrl-C ends it") < times:
            assert time.monotonic() < end, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.05)
        return self.text.split("Ctrl-C ends it")[times - 1]


@pytest.fixture
def watched(workdir: Path):
    Path("rates.yaml").write_text("vars: {rate: 0.1}\n")
    Path("spec.yaml").write_text(SPEC)
    found = Watched()
    yield found
    found.close()


def replace(name, text):
    """Write a file as editors do: a new one takes its place."""
    Path(f"{name}~").write_text(text)
    Path(f"{name}~").replace(name)


def test_changes_of_every_file_are_shown_until_it_is_interrupted(watched):
    assert "learn.loss = mean(y ** 2)" in watched.wait(1)
    assert "watching 2 files" in watched.text
    replace("spec.yaml", SPEC.replace("mean(y**2)", "mean(abs(y))"))
    assert "learn.loss = mean(abs(y))" in watched.wait(2)
    replace("spec.yaml", SPEC.replace("forward: net", "forward: nut"))
    assert "error[GS103]" in watched.wait(3)
    replace("spec.yaml", SPEC)
    watched.wait(4)
    replace("rates.yaml", "vars: {rat: 0.1}\n")
    assert "there is no variable 'rate'" in watched.wait(5)
    Path("spec.yaml").unlink()
    assert "there is no file 'spec.yaml'" in watched.wait(6)
    watched.process.send_signal(signal.SIGINT)
    assert watched.process.wait(timeout=30) == 0
