"""Published training steps through the command: each checks, and its plan is the one that is kept beside it.

To write all plans anew: ``python -m tests.golden.test_valid``; name some (``wgan_gp``) for these alone. Then read the
difference: a plan that changed is a step that runs in another order, or for another reason.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
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


def print_plans(path: Path) -> str:
    """Return what the command prints for a kept plan, whose name says how it is called; in the folder of the specs."""
    name, *options = path.name.removesuffix(".txt").split(".")
    backend = next((option for option in options if option in TABLES), "torch")
    order = next((option for option in options if option in POLICIES), "fewest")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for mode in ("train", "eval"):
            assert execute(["plan", f"{name}.yaml", "--backend", backend, "--order", order, "--mode", mode]) == 0
            print()
    return printed.getvalue().removesuffix("\n")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_command_prints_the_plan_that_is_kept(monkeypatch, path):
    monkeypatch.chdir(VALID)
    assert print_plans(path) == path.read_text(encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("FORCE_COLOR", None)
    os.chdir(VALID)
    for text in TEXTS:
        if not sys.argv[1:] or text.stem in sys.argv[1:]:
            text.write_text(print_plans(text), encoding="utf-8")
