"""Notes: what a reader of a plan should know in addition to its decisions and warnings."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.checks.effects import find_idle
from compiler.facts.models import ModelFacts, find_used_models, find_used_states
from compiler.ir.instructions import Counted
from graphspec.analysis.evaluation import find_role, find_unread
from graphspec.declare.graph import GraphSpec


def find_notes(spec: GraphSpec, models: Mapping[str, ModelFacts], counted: Mapping[str, Counted]) -> tuple[str, ...]:
    """Return a sentence for everything that is assumed of models and losses, unused, or without effect."""
    notes: list[str] = []
    for model in models.values():
        if model.assumed or model.is_unwatched:  # the worst is assumed, but for recomputed forwards
            worst = (*model.assumed, *(("no recomputed forwards",) if model.is_unwatched else ()))
            notes.append(f"assumed of '{model.name}', whose class declares no such traits: {', '.join(worst)}")
    for name, how in counted.items():
        if how == "assumed":
            notes.append(f"assumed of '{name}', a function of yours: it may return (sum, count)")
    used, known = find_used_models(spec), find_used_states(spec)
    notes += [f"no op uses model '{name}': it is not built" for name in spec.models if name not in used]
    notes += [f"no op uses state '{name}': it is not built" for name in spec.state if name not in known]
    for role in find_unread(spec):
        command = "stepgraph eval" if role == find_role(spec) else f"stepgraph eval --data {role}"
        notes.append(
            f"a run does not read data '{role}', only `{command}` does: write `run: {{eval: {{data: {role}}}}}`"
        )
    return (*notes, *find_idle(spec))
