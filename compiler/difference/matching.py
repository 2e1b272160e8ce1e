"""Find which function of one plan is which of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.ir import StepGraph
from compiler.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A function by its names in two plans; empty where a plan does not have it."""

    mode: str
    old: str
    new: str


def match_functions(old: Plan, new: Plan, mode: str) -> tuple[Pair, ...]:
    """Return the functions of a mode in pairs: those in which the same of the ops that both specs have write."""
    known = frozenset(old.spec.ops).intersection(new.spec.ops)
    rest = dict(old.graphs_of(mode))
    fresh = new.graphs_of(mode)
    if len(rest) == len(fresh) == 1:
        return (Pair(mode=mode, old=next(iter(rest)), new=next(iter(fresh))),)
    pairs: list[Pair] = []
    for name, graph in fresh.items():
        found = _find_same(graph, rest, known)
        rest.pop(found, None)
        pairs.append(Pair(mode=mode, old=found, new=name))
    return (*pairs, *(Pair(mode=mode, old=name, new="") for name in rest))


def _find_same(graph: StepGraph, candidates: Mapping[str, StepGraph], known: frozenset[str]) -> str:
    """Return the first of the candidates in which the same known ops write, or nothing."""
    wanted = known.intersection(graph.active)
    return next((name for name, each in candidates.items() if known.intersection(each.active) == wanted), "")
