"""Examples in docstrings run, and every function that the packages export has one."""

from __future__ import annotations

import doctest
from pathlib import Path
from types import FunctionType

import pytest

import compiler
import graphspec
import runtime
from compiler import Plan
from runtime import Step

ROOT = Path(__file__).resolve().parents[2]
EXPORTED = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (graphspec, compiler, runtime)
    for name in package.__all__
    if isinstance(getattr(package, name), FunctionType)
}
FORMS = {f"Plan.{name}": getattr(Plan, name) for name in ("text", "to_json", "mermaid", "dot", "graph", "explain")}
WITHOUT = {"runtime.reopen"}
"""It needs a run that was trained; tests/cli/test_export.py uses it."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", sorted([*EXPORTED.keys() - WITHOUT, *FORMS, "Step"]))
def test_its_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = {**EXPORTED, **FORMS, "Step": Step}[name]
    (case,) = (each for each in doctest.DocTestFinder(recurse=False).find(shown, name) if each.examples)
    assert doctest.DocTestRunner().run(case).failed == 0
