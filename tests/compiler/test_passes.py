"""Passes that say when they have nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import compiler.passes.functions
from compiler import Pace, compile_step
from compiler.ir.step_graph import StepGraph
from compiler.passes.document import Context
from compiler.passes.pipeline import SCHEDULING, Pass
from graphspec import load
from tests.compiler.conftest import PROGRAMS

SPECS = Path(__file__).parents[1] / "conformance" / "specs"
NAMES = [path for place in (SPECS, PROGRAMS) for path in sorted(place.glob("*.yaml"))]


@pytest.mark.parametrize("path", NAMES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_pass_that_has_nothing_to_do_would_change_nothing(path, monkeypatch):
    changed: list[str] = []

    def always(each: Pass[StepGraph]) -> Pass[StepGraph]:
        """Return a pass that always runs, and notes if it changes a graph with which it says to have nothing to do."""

        def run(graph: StepGraph, context: Context) -> StepGraph:
            """Run the pass."""
            result = each.run(graph, context)
            if result != graph and not each.when(graph, context):
                changed.append(each.name)
            return result

        return replace(each, run=run, when=lambda graph, context: True)

    spec = load(path).model_copy(update={"join_calls": True, "join_gradients": True})
    monkeypatch.setattr(compiler.passes.functions, "SCHEDULING", tuple(map(always, SCHEDULING)))
    compile_step(spec, pace=Pace(epoch=6, batch=4, run=60), pending=True)
    assert changed == []
