"""Published training steps through the command: each checks, and its plan is the one that is kept beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler.ir.hazard_table import TABLES
from compiler.passes.policies import POLICIES
from runtime.cli import execute

VALID = Path(__file__).parent / "valid"
SPECS = sorted(VALID.glob("*.yaml"))
TEXTS = sorted(VALID.glob("*.txt"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_published_step_checks(monkeypatch, capsys, path):
    monkeypatch.chdir(VALID)
    assert execute(["check", path.name]) == 0
    assert re.match(
        rf"{path.name}: ok, \d+ warnings? \(\d+ models?, \d+ ops, \d+ updates?\)\n$", capsys.readouterr().out
    )


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_command_prints_the_plan_that_is_kept(monkeypatch, capsys, path):
    name, *options = path.name.removesuffix(".txt").split(".")
    backend = next((option for option in options if option in TABLES), "torch")
    order = next((option for option in options if option in POLICIES), "fewest")
    monkeypatch.chdir(VALID)
    for mode in ("train", "eval"):
        assert execute(["plan", f"{name}.yaml", "--backend", backend, "--order", order, "--mode", mode]) == 0
        print()
    assert capsys.readouterr().out.removesuffix("\n") == path.read_text(encoding="utf-8")
