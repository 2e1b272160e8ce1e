"""check, render, plan, explain, diff and emit load no framework and nothing that a spec names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event in ("import", "open") else None)
from runtime.cli import execute
code = execute(sys.argv[1:])
heavy = sorted({"torch", "tensorflow", "keras", "matplotlib", "untouchable"} & set(sys.modules))
touched = sorted({str(each) for each in opened if "untouchable" in str(each)})
print(code, heavy, touched, file=sys.stderr)
"""
SPEC = """graphspec: 1
name: named
inputs: {x: {shape: [batch, 4]}}
models:
  net: {class: "untouchable:Net", traits: {buffers: false, rng: false, batch_coupled: false}, optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  error: {loss: "untouchable:error", inputs: y}
  learn: {update: net, loss: error}
outputs: [error]
data: {train: {class: "untouchable:Data", batch: 4}}
"""


@pytest.mark.parametrize("arguments", [["check"], ["render"], ["plan"], ["explain"], ["diff"], ["emit"]])
def test_no_framework_and_nothing_of_the_users_is_imported(workdir, arguments):
    Path("named.yaml").write_text(SPEC)
    Path("untouchable.py").write_text("raise SystemExit('imported')")
    op = {"explain": ["learn"], "diff": ["named.yaml"]}.get(arguments[0], [])
    command = [sys.executable, "-c", PROBE, arguments[0], "named.yaml", *op, *arguments[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0 [] []"


@pytest.mark.parametrize("command", ["check", "emit"])
def test_checking_and_emitting_need_no_arrays(workdir, command):
    Path("named.yaml").write_text(SPEC)
    code = "import sys; from runtime.cli import execute; execute(sys.argv[1:]); print('numpy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", code, command, "named.yaml"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
