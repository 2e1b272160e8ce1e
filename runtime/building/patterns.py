"""Patterns of a built step: the parameters of users' classes are known by now, and which of them models share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from compiler.facts.parameters import check_patterns
from compiler.ir.program import Program
from graphspec.diagnostics import Diagnostic, Span
from graphspec.graph import GraphSpec
from graphspec.groups import GroupSpec
from graphspec.matching import is_found
from runtime.building.attribution import find_span

Parameters = Mapping[str, object]
"""The parameters of a model by name, each under its first."""


def check_parameters(models: Mapping[str, Parameters], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield E-MATCH for patterns that fit nothing or overlap, and for shared parameters whose groups differ."""
    yield from check_patterns(spec, {name: tuple(parameters) for name, parameters in models.items()})
    trained = [model.name for model in program.models if model.trained and model.name in models]
    for one, other in combinations(trained, 2):
        shared = {id(parameter): name for name, parameter in models[one].items()}
        for name, parameter in models[other].items():
            first = shared.get(id(parameter))
            if first is not None and _find_group(one, first, spec) != _find_group(other, name, spec):
                yield _contradiction(f"{one}.{first}", f"{other}.{name}", find_span(spec, other))


def _find_group(model: str, name: str, spec: GraphSpec) -> GroupSpec | None:
    """Return what is different for a parameter of a model, whatever the pattern; None where it is in no group."""
    found = next((group for group in spec.models[model].groups if is_found(group.match, name)), None)
    scale = 1.0 if found is None or found.lr_scale is None else found.lr_scale
    return None if found is None else found.model_copy(update={"match": "", "lr_scale": scale})


def _contradiction(first: str, second: str, span: Span | None) -> Diagnostic:
    """Return the problem of a shared parameter that is in unlike groups."""
    message = f"'{first}' and '{second}' are one parameter, but the groups of their models say different things of it"
    help = "write the same for it in the groups of both models"
    return Diagnostic(code="E-MATCH", message=message, span=span, help=help)
