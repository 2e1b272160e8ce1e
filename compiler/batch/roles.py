"""Roles: which batched nodes run only once, before the batch is split or after all micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from compiler.batch.calls import Kind
from compiler.batch.reading import Reading
from compiler.facts.models import ModelFacts
from compiler.ir.instructions import Evaluate, Forward, Instruction, Random
from compiler.passes.order import find_producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The nodes that run for every micro-batch, and those that run once on the whole batch although they need not."""

    split: frozenset[str]
    merged: frozenset[str]
    """Forwards without a graph that couple no samples, on values that exist before the batch is split."""
    gathered: frozenset[str]
    """Calls and losses after all gradients: only nodes that run once use them."""


def find_roles(
    nodes: Mapping[str, Instruction], recorded: Collection[str], reading: Reading, models: Mapping[str, ModelFacts]
) -> Roles:
    """Return how the nodes of a mode run; ``recorded`` are those on the path of some gradient."""
    batched = [name for name, node in nodes.items() if reading.is_batched(node)]
    merged = frozenset(_find_merged(nodes, batched, recorded, reading, models))
    rest = [name for name in batched if name not in merged]
    gathered = _find_gathered(nodes, rest, recorded)
    return Roles(split=frozenset(rest) - gathered, merged=merged, gathered=gathered)


def _find_merged(
    nodes: Mapping[str, Instruction],
    batched: Collection[str],
    recorded: Collection[str],
    reading: Reading,
    models: Mapping[str, ModelFacts],
) -> Iterator[str]:
    """Yield the forwards that can run on the whole batch: inputs are whole, no graph is kept, no samples coupled."""
    whole = set(reading.spec.inputs)
    whole |= {value for node in nodes.values() if isinstance(node, Random) for value in node.defines}
    pending, before = set(batched), -1
    while len(pending) != before:
        before = len(pending)
        for name in [each for each in batched if each in pending]:
            node = nodes[name]
            used = (use.value for use in node.uses if reading.kind(use.value) is not Kind.WHOLE)
            if name not in recorded and _keeps_apart(node, models) and whole.issuperset(used):
                pending.discard(name)
                whole.update(node.defines)
                yield name


def _keeps_apart(node: Instruction, models: Mapping[str, ModelFacts]) -> bool:
    """Return whether a forward's result for a sample is the same in every batch, and the forward writes nothing."""
    if not isinstance(node, Forward) or node.draws or node.writes:
        return False
    return not (node.train and models[node.model].batch_coupled)


def _find_gathered(
    nodes: Mapping[str, Instruction], batched: Collection[str], recorded: Collection[str]
) -> frozenset[str]:
    """Return the calls and losses outside gradient paths whose results only run-once nodes use, such as metrics."""
    producers = find_producers(nodes.values())
    users: dict[str, set[str]] = {}
    for name, node in nodes.items():
        for use in node.uses:
            users.setdefault(producers.get(use.value, use.value), set()).add(name)
    pending = set(batched)
    candidates = [name for name in batched if isinstance(nodes[name], Evaluate) and name not in recorded]
    before = -1
    while len(pending) != before:
        before = len(pending)
        pending -= {name for name in candidates if pending.isdisjoint(users.get(name, ()))}
    return frozenset(batched) - pending
