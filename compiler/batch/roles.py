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
    # calls and losses that no gradient needs, and whose results only nodes that run once use, such as metrics
    producers = find_producers(nodes.values())
    users: dict[str, set[str]] = {}
    for name, node in nodes.items():
        for use in node.uses:
            users.setdefault(producers.get(use.value, use.value), set()).add(name)
    split, before = set(rest), -1
    candidates = [name for name in rest if isinstance(nodes[name], Evaluate) and name not in recorded]
    while len(split) != before:
        before = len(split)
        split -= {name for name in candidates if split.isdisjoint(users.get(name, ()))}
    return Roles(split=frozenset(split), merged=merged, gathered=frozenset(rest) - split)


def _find_merged(
    nodes: Mapping[str, Instruction],
    batched: Collection[str],
    recorded: Collection[str],
    reading: Reading,
    models: Mapping[str, ModelFacts],
) -> Iterator[str]:
    """Yield the forwards that can run on the whole batch, before it is split.

    Their inputs are whole, no graph is recorded, nothing is drawn or written, and no samples are coupled.
    """
    whole = set(reading.spec.inputs)
    whole |= {value for node in nodes.values() if isinstance(node, Random) for value in node.defines}
    pending, before = set(batched), -1
    while len(pending) != before:
        before = len(pending)
        for name in [each for each in batched if each in pending]:
            node = nodes[name]
            used = (use.value for use in node.uses if reading.kind(use.value) is not Kind.WHOLE)
            if not isinstance(node, Forward) or node.draws or node.writes or name in recorded:
                continue
            is_coupled = node.train and models[node.model].batch_coupled
            if not is_coupled and whole.issuperset(used):
                pending.discard(name)
                whole.update(node.defines)
                yield name
