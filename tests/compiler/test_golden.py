"""Whole plans as text, to see every change; what they say is proved elsewhere.

The name of an expected text is that of its program, then the backend and the order policy where they are not the
default: ``dcgan.txt``, ``autoencoder.listed.txt``, ``autoencoder.tensorflow.listed.txt``. To write all of them anew:
``python -m tests.compiler.test_golden``; then read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.ir.hazard_table import TABLES
from compiler.passes.policies import POLICIES
from tests.compiler.conftest import PROGRAMS, program

TEXTS = sorted(PROGRAMS.glob("*.txt"))


def plan_text(path: Path) -> str:
    """Return the plan that a file should hold, all modes in one text."""
    name, *options = path.name.removesuffix(".txt").split(".")
    backend = next((option for option in options if option in TABLES), "torch")
    order = next((option for option in options if option in POLICIES), "fewest")
    plan = program(name, backend=backend, order=order)
    return "\n".join(plan.text(mode.mode) for mode in plan.program.modes)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_plan_reads_as_before(path):
    assert plan_text(path) == path.read_text(encoding="utf-8")


def test_every_program_has_an_expected_plan():
    assert {path.name.split(".")[0] for path in TEXTS} == {path.stem for path in PROGRAMS.glob("*.yaml")}


if __name__ == "__main__":
    for text in TEXTS:
        text.write_text(plan_text(text), encoding="utf-8")
