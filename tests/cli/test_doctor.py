"""`stepgraph doctor`: on this machine, and with a spec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.cli import doctor, doctor_child, execute
from runtime.cli.doctor import Report

SPEC = """graphspec: 1
name: two-steps
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 3}], optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  error: {call: mean, inputs: y}
  learn: {update: net, loss: error}
outputs: [error]
"""
MODELS = "import torch\n\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n"
USERS = SPEC.replace("{layers: [{linear: 3}], optimizer: sgd}", '{class: "mine:Net", optimizer: sgd}')


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Let the examination happen here, where the framework is loaded already: other tests take other processes."""
    monkeypatch.setattr(doctor, "run_apart", lambda arguments: Report(found=dict(doctor_child.find(arguments))))


@pytest.mark.needs("torch")
def test_it_says_where_a_spec_would_run(workdir, capsys):
    Path("spec.yaml").write_text(SPEC)
    assert execute(["doctor", "spec.yaml"]) == 0
    out = capsys.readouterr().out
    assert "\nbackend torch " in out
    assert out.endswith("spec.yaml: can be built: 15 parameters on cpu (torch)\n")


@pytest.mark.needs("torch")
def test_code_of_the_users_is_built_only_where_it_is_allowed(workdir, capsys):
    Path("spec.yaml").write_text(USERS)
    Path("mine.py").write_text(f"open('imported', 'w').close()\n{MODELS}")
    assert execute(["doctor", "spec.yaml"]) == 0
    assert "  if you trust it, add: --allow mine\n" in capsys.readouterr().out
    assert not Path("imported").exists()
    assert execute(["doctor", "spec.yaml", "--allow", "mine", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["trial"]["parameters"] == 15


@pytest.mark.needs("torch")
def test_a_spec_that_cannot_be_built_fails_with_its_problems(workdir, capsys):
    Path("spec.yaml").write_text(USERS)
    Path("mine.py").write_text("class Net:\n    pass\n")
    assert execute(["doctor", "spec.yaml", "--allow", "mine"]) == 1
    captured = capsys.readouterr()
    assert captured.out.endswith("spec.yaml: cannot be built here\n")
    assert "error[GS2" in captured.err


def test_a_spec_that_is_wrong_is_told_before_anything_else(workdir, capsys):
    Path("spec.yaml").write_text(SPEC.replace("update: net", "update: nut"))
    assert execute(["doctor", "spec.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error[GS103]" in captured.err


def test_a_backend_that_runs_nothing_fails_for_a_spec(workdir, capsys, monkeypatch):
    Path("spec.yaml").write_text(SPEC)
    monkeypatch.setattr(doctor, "run_apart", lambda arguments: Report(trouble="a library is missing"))
    assert execute(["doctor", "spec.yaml", "--backend", "tensorflow"]) == 1
    assert "the backend tensorflow runs nothing here" in capsys.readouterr().err
