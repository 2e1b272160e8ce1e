"""`stepgraph render`: what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphspec import load
from graphspec.write.render import render
from runtime.cli import execute

SPEC = """graphspec: 1
name: small  # a remark
vars: {rate: 1e-3}
inputs: {x: {shape: [batch, 4]}}
models: {net: {class: "mine:Net", args: {most: 1.0}, optimizer: {name: sgd, lr: "${rate}"}}}
ops:
  y: {forward: net, inputs: x}
  error: {loss: mse, inputs: [y, x]}
  learn: {update: net, loss: error}
"""


@pytest.fixture
def spec(workdir: Path) -> Path:
    Path("spec.yaml").write_text(SPEC)
    return workdir


def test_what_is_printed_renders_to_itself(spec, capsys):
    assert execute(["render", "spec.yaml", "-s", "vars.rate=0.5", "-o", "full.yaml"]) == 0
    assert execute(["render", "full.yaml"]) == 0
    out = capsys.readouterr().out
    assert out == Path("full.yaml").read_text() == render(load(Path("spec.yaml"), ["vars.rate=0.5"]))
    assert "lr: 0.5" in out
    assert "remark" not in out


def test_json_loads_to_the_same_spec(spec):
    assert execute(["render", "spec.yaml", "--format", "json", "-o", "full.json"]) == 0
    assert json.loads(Path("full.json").read_text())["models"]["net"]["optimizer"]["lr"] == 0.001
    assert load(Path("full.json")) == load(render(load(Path("spec.yaml"))))


def test_json_has_no_infinity(spec, capsys):
    assert execute(["render", "spec.yaml", "-s", "models.net.args.most=.inf", "--format", "json"]) == 1
    assert "error[GS238]" in capsys.readouterr().err
    assert execute(["render", "spec.yaml", "-s", "models.net.args.most=.inf"]) == 0
    assert "args: {most: .inf}" in capsys.readouterr().out


def test_a_wrong_spec_is_told_as_by_check(spec, capsys):
    assert execute(["render", "spec.yaml", "-s", "ops.learn.update=nut"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error[GS103]" in captured.err
