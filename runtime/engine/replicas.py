"""Models that act on gradients themselves: wrapped for several processes, or with hooks that only backward calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.engine.load import find_span

DECLARE = "replicas are declared in the spec, by `kind: replicated` under `parallel`"


class Reducer(Struct, frozen=True, kw_only=True):
    """A part of a model that acts on gradients: what it is, what goes wrong in a step, and what to do instead."""

    what: str
    why: str
    remedy: str


def refuse_reducers(found: Mapping[str, Iterator[Reducer]], spec: GraphSpec) -> None:
    """Raise SpecError (GS273) with the first part of every model that acts on gradients itself, if there is one."""
    problems = [
        Diagnostic(
            code="GS273",
            message=f"model '{name}'{each.what}; {each.why}",
            span=find_span(spec, name),
            help=each.remedy,
        )
        for name, reducers in found.items()
        for each in (next(reducers, None),)
        if each is not None
    ]
    if problems:
        raise SpecError(problems, spec.texts())
