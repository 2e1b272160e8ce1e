"""Modes: where an op can run, given where the values it reads are computed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MODES, ModeName, Op, Reference
from graphspec.declare.run import EvalSpec


class Reach(Struct, frozen=True, kw_only=True):
    """The modes an op can run in; for every other mode it was meant for, the op whose `mode` excludes it."""

    modes: frozenset[ModeName]
    blockers: Mapping[ModeName, str]


def is_bound(op: Op) -> bool:
    """Return whether an op says its modes, by a `mode` field or by writing a model; others run where they can."""
    return op.mode is not None or op.default_modes != MODES


def find_modes(ops: Mapping[str, Op], evaluation: EvalSpec | None) -> tuple[ModeName, ...]:
    """Return train, eval, and every other mode that an op or the evaluation of a run names; `"!eval"` names all."""
    words = {word for op in ops.values() for word in op.mode or ()}
    named: set[str] = {*MODES} if any(word.startswith("!") for word in words) else {*words}
    named |= {"train", "eval"} if evaluation is None else {"train", "eval", evaluation.mode}
    return tuple(mode for mode in MODES if mode in named)


@once_per_spec
def find_reaches(spec: GraphSpec) -> Mapping[str, Reach]:
    """Return where every op can run: an op that does not say its modes runs where all its inputs are computed."""
    ops, producers = spec.ops, find_producers(spec)
    consumers: dict[str, list[str]] = {name: [] for name in ops}
    for name, sources in producers.items():
        for source in sources:
            consumers[source].append(name)
    blocked: dict[str, dict[ModeName, str]] = {
        name: {mode: name for mode in MODES if not op.runs_in(mode)} for name, op in ops.items()
    }
    waiting = [name for name in ops if blocked[name]]
    while waiting:
        source = waiting.pop()
        for name in consumers[source]:
            fresh: dict[ModeName, str] = {
                mode: who for mode, who in blocked[source].items() if mode not in blocked[name]
            }
            if fresh and not is_bound(ops[name]):
                blocked[name] |= fresh
                waiting.append(name)
    return {name: Reach(modes=frozenset(MODES) - each.keys(), blockers=each) for name, each in blocked.items()}


@once_per_spec
def find_makers(spec: GraphSpec) -> Mapping[str, str]:
    """Return the op that defines each value."""
    return {value: name for name, op in spec.ops.items() for value in op.defines(name)}


@once_per_spec
def find_references(spec: GraphSpec) -> Mapping[str, tuple[tuple[Reference, str], ...]]:
    """Return, by op, where it mentions what an op must have made, each with that op."""
    makers = find_makers(spec)
    return {
        name: tuple((each, makers[each.name]) for each in op.operands() if each.name in makers)
        for name, op in spec.ops.items()
    }


@once_per_spec
def find_producers(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return the ops whose values every op reads."""
    return {name: tuple(dict.fromkeys(source for _, source in each)) for name, each in find_references(spec).items()}
