"""Notes: what a reader of a plan should know in addition to its decisions and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.checks.effects import find_idle
from compiler.facts.models import ModelFacts, find_used_models, find_used_states
from compiler.ir.instructions import Counted
from graphspec.declare.graph import GraphSpec


def find_notes(spec: GraphSpec, models: Mapping[str, ModelFacts], counted: Mapping[str, Counted]) -> tuple[str, ...]:
    """Return a sentence for everything that is assumed of models and losses, unused, or without effect."""
    return (*_assumptions(models), *_counts(counted), *_unused(spec), *find_idle(spec))


def _counts(counted: Mapping[str, Counted]) -> Iterator[str]:
    """Yield a sentence for every loss of which it is assumed that it counts by itself."""
    for name, how in counted.items():
        if how == "assumed":
            yield f"assumed of '{name}', a function of yours: it may return (sum, count)"


def _assumptions(models: Mapping[str, ModelFacts]) -> Iterator[str]:
    """Yield a sentence for every model of which something is assumed: the worst, but for recomputed forwards."""
    for model in models.values():
        if model.assumed or model.is_unwatched:
            worst = (*model.assumed, *(("no recomputed forwards",) if model.is_unwatched else ()))
            yield f"assumed of '{model.name}', whose class declares no such traits: {', '.join(worst)}"


def _unused(spec: GraphSpec) -> Iterator[str]:
    """Yield a sentence for every model and every state that no op uses."""
    used = find_used_models(spec)
    yield from (f"no op uses model '{name}': it is not built" for name in spec.models if name not in used)
    known = find_used_states(spec)
    yield from (f"no op uses state '{name}': it is not built" for name in spec.state if name not in known)
