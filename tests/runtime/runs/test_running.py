"""The way of a run before its first step: what is looked at first, and how long the run is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from compiler.timing.units import Pace
from graphspec.loading import load
from runtime.train.run import find_pace

ROOT = Path(__file__).resolve().parents[3]
TEXT = """
graphspec: 1
name: line
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  learn: {update: net, loss: loss}
data: {train: {source: npz, path: gone.npz, batch: 10}}
"""


@pytest.mark.parametrize(
    ("run", "length", "wanted", "steps"),
    [
        ("{epochs: 3}", 8, None, 24),
        ("{epochs: 3}", None, None, None),
        ("{steps: 5}", 8, None, 5),
        ("{steps: 5}", 8, 9, 9),
    ],
)
def test_the_pace_is_that_of_the_data_and_of_what_was_asked_for(run, length, wanted, steps):
    spec = load(f"{TEXT}run: {run}\n")
    assert find_pace(spec, SimpleNamespace(length=length), wanted) == Pace(epoch=length, batch=10, run=steps)


def test_data_that_are_not_there_are_told_before_a_framework_is_imported(tmp_path):
    (tmp_path / "line.yaml").write_text(TEXT)
    program = "import sys; from runtime.cli import execute; c = execute(sys.argv[1:]); print(c, 'torch' in sys.modules)"
    command = [sys.executable, "-c", program, "run", "line.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"
    assert "error[GS221]" in done.stderr
    assert os.listdir(tmp_path) == ["line.yaml"]
