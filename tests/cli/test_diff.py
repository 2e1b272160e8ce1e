"""`stepgraph diff`: its exit codes, and what it prints for specs that are the same, different and wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from runtime.cli import execute

SPEC = """graphspec: 1
name: two
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 4}], optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  error: {loss: mse, inputs: [y, x]}
  learn: {update: net, loss: error}
  again: {forward: net, inputs: x, after: learn}
  later: {loss: mse, inputs: [again, x]}
outputs: [error, later]
"""


@pytest.fixture
def pair(workdir: Path):
    """Return a function that writes the two specs and compares them."""

    def compare(old, new, *options):
        Path("old.yaml").write_text(old)
        Path("new.yaml").write_text(new)
        return execute(["diff", "old.yaml", "new.yaml", *options])

    return compare


def test_two_specs_that_say_the_same_are_told_to_in_one_line(pair, capsys):
    assert pair(SPEC, "# elsewhere\n\n" + SPEC.replace("inputs: x}", "inputs: [x]}")) == 0
    out = capsys.readouterr().out
    assert "declared: nothing is different\n" in out
    assert out.endswith("\nthe schedule is the same: no instruction, decision or warning is different\n")


def test_a_version_that_is_read_otherwise_is_no_failure(pair, capsys):
    assert pair(SPEC, SPEC.replace(", after: learn", "")) == 0
    out = capsys.readouterr().out
    assert "  ops.again.after: learn -> " in out
    assert "  ~ forward again reads net.params@0 instead of net.params@1\n" in out


def test_a_learning_rate_changes_what_is_declared_alone(pair, capsys):
    assert pair(SPEC, SPEC.replace("optimizer: sgd", "optimizer: {name: sgd, lr: 0.5}")) == 0
    out = capsys.readouterr().out
    assert "  models.net.optimizer.lr: 0.001 -> 0.5\n" in out
    assert "the schedule is the same" in out


def test_backend_and_order_are_those_that_are_asked_for(pair, capsys):
    assert pair(SPEC, SPEC, "--backend", "tensorflow", "--order", "latest") == 0
    assert capsys.readouterr().out.startswith("old.yaml -> new.yaml  (tensorflow, order latest)\n")


def test_json_has_both_parts(pair, capsys):
    assert pair(SPEC, SPEC.replace(", after: learn", ""), "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["path"], each["before"]) for each in found["declared"]] == [("ops.again.after", "learn")]
    altered = found["functions"][0]["instructions"]["altered"]
    assert [(each["op"], each["before"], each["after"]) for each in altered] == [
        ("again", "net.params@1", "net.params@0")
    ]


def test_a_spec_that_does_not_compile_shows_its_problems_and_what_is_declared(pair, capsys):
    assert pair(SPEC, SPEC.replace("y: {forward: net, inputs: x}", "y: {forward: net, inputs: x, after: learn}")) == 1
    captured = capsys.readouterr()
    assert re.search(r"\n  ops\.y\.after: .* -> learn\n", captured.out)
    assert "error[E-CYCLE]" in captured.err
    assert captured.err.endswith("the schedules are not compared: a spec that does not compile has none\n")


def test_both_specs_are_read_before_it_gives_up(pair, capsys):
    assert pair(SPEC.replace("update: net", "update: nut"), SPEC.replace("loss: mse", "loss: mze")) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "old.yaml:9:" in captured.err
    assert "new.yaml:8:" in captured.err


def test_an_override_changes_the_second_spec_alone(pair, capsys):
    assert pair(SPEC, SPEC, "-s", "models.net.optimizer={name: sgd, lr: 0.5}") == 0
    assert "  models.net.optimizer.lr: 0.001 -> 0.5\n" in capsys.readouterr().out


def test_an_unknown_override_is_an_error_of_the_second_spec(pair, capsys):
    assert pair(SPEC, SPEC, "-s", "models.net.optimiser=adam") == 1
    assert "optimiser" in capsys.readouterr().err
