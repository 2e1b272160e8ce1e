"""The pass pipeline, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.ir.hazard_table import HazardTable
from compiler.ir.step_graph import StepGraph
from compiler.passes.commits import find_commits
from compiler.passes.decisions import explain_decisions
from compiler.passes.flags import infer_flags
from compiler.passes.hazards import find_hazards, resolve_cycles
from compiler.passes.paths import find_paths
from compiler.passes.policies import Policy
from compiler.passes.schedule import schedule
from compiler.passes.versions import assign_versions
from graphspec.declare.graph import GraphSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What passes may depend on in addition to the graph."""

    spec: GraphSpec
    table: HazardTable
    policy: Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A named function from graph to graph."""

    name: str
    run: Callable[[StepGraph, Context], StepGraph]


ANALYSES: tuple[Pass, ...] = (
    Pass(name="versions", run=lambda graph, context: assign_versions(graph)),
    Pass(name="paths", run=lambda graph, context: find_paths(graph)),
    Pass(name="commits", run=lambda graph, context: find_commits(graph)),
    Pass(name="hazards", run=lambda graph, context: find_hazards(graph, context.table)),
    Pass(name="cycles", run=lambda graph, context: resolve_cycles(graph, context.spec)),
)
"""Analysis: what the graph means. Needed before the checks."""

DECISIONS: tuple[Pass, ...] = (
    Pass(name="schedule", run=lambda graph, context: schedule(graph, context.policy)),
    Pass(name="flags", run=lambda graph, context: infer_flags(graph)),
    Pass(name="decisions", run=lambda graph, context: explain_decisions(graph)),
)
"""Scheduling: only for graphs without problems."""

Hook = Callable[[str, StepGraph], None]
"""Called after every pass with its name and result: to dump, time or verify."""


def run_passes(graph: StepGraph, passes: tuple[Pass, ...], context: Context, hook: Hook | None = None) -> StepGraph:
    """Return the graph after the passes, in order."""
    for step in passes:
        graph = step.run(graph, context)
        if hook is not None:
            hook(step.name, graph)
    return graph
