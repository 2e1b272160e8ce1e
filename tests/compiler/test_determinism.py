"""The same bytes every time, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiler.conftest import PROGRAMS

ROOT = Path(__file__).parents[2]
SHOW = """
import json, sys
from compiler import compile_step
from graphspec.loading import load
for number, name in enumerate(sys.argv[1:]):
    order = ("fewest", "listed", "memory")[number % 3]
    plan = compile_step(load(name + "\\n" if name.startswith("{") else name), "torch", order)
    print(plan, plan.explain(next(iter(plan.spec.ops))), plan.mermaid(), plan.dot(), json.dumps(plan.to_json()))
"""
WRONG = """
from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
try:
    compile_step(load(__import__("sys").argv[1]))
except SpecError as error:
    print(error)
"""
CYCLES = """\
graphspec: 1
name: wrong
inputs: {x: {shape: [batch, 4]}}
models: {a: {layers: [{linear: 4}], optimizer: sgd}, b: {layers: [{linear: 4}], optimizer: sgd}}
ops:
  fa: {forward: a, inputs: x, after: [step_a, step_b]}
  fb: {forward: b, inputs: fa, after: [step_b, step_a]}
  l: {loss: mse, inputs: [fb, x]}
  step_a: {update: a, loss: l}
  step_b: {update: b, loss: l}
"""


def run(script: str, *arguments: str, seed: int) -> bytes:
    """Return what a fresh interpreter with a hash seed prints."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True, cwd=ROOT).stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [1, 31337])
def test_plans_are_the_same_bytes_for_every_hash_seed(seed):
    files = sorted(str(path) for path in PROGRAMS.glob("*.yaml"))
    assert run(SHOW, *files, seed=seed) == plans_of_seed_zero(tuple(files))


_FIRST: dict[tuple[str, ...], bytes] = {}


def plans_of_seed_zero(files: tuple[str, ...]) -> bytes:
    """Return what hash seed 0 prints, computed once."""
    if files not in _FIRST:
        _FIRST[files] = run(SHOW, *files, seed=0)
    return _FIRST[files]


def test_errors_are_the_same_bytes_for_every_hash_seed():
    texts = {run(WRONG, CYCLES, seed=seed) for seed in range(3)}
    assert len(texts) == 1
    assert b"E-CYCLE" in texts.pop()


def test_a_plan_does_not_depend_on_the_folder_of_the_file(tmp_path):
    copied = tmp_path / "dcgan.yaml"
    copied.write_text((PROGRAMS / "dcgan.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert run(SHOW, str(copied), seed=0) == run(SHOW, str(PROGRAMS / "dcgan.yaml"), seed=0)
