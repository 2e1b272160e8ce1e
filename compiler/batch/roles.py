"""Roles: which batched nodes run only once, before the batch is split or after all micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from compiler.batch.placement import PlacementAnalysis
from compiler.facts.models import ModelFacts
from compiler.ir.instructions import Evaluate, Forward, Instruction, Random
from compiler.ir.step_graph import find_producers
from compiler.passes.order import sort_by_data
from compiler.types.calls import Placement


class Roles(Struct, frozen=True, kw_only=True):
    """The nodes that run for every micro-batch, and those that run once on the whole batch although they need not."""

    split: frozenset[str]
    merged: frozenset[str]
    """Forwards without a graph that couple no samples, on values that exist before the batch is split."""
    gathered: frozenset[str]
    """Calls and losses after all gradients: only nodes that run once use them."""


def find_roles(
    nodes: Mapping[str, Instruction],
    recorded: Collection[str],
    analysis: PlacementAnalysis,
    models: Mapping[str, ModelFacts],
) -> Roles:
    """Return how the nodes of a mode run; ``recorded`` are those on the path of some gradient."""
    batched, whole = list[str](), set(analysis.spec.inputs)
    for name, node in nodes.items():
        if analysis.is_batched(node):
            batched.append(name)
        if isinstance(node, Random):
            whole.update(node.defines)
    merged: set[str] = set()
    order = sort_by_data(nodes)
    candidates = frozenset(batched)
    # replicas merge nothing: what they have are rows of their own
    for name in (name for name in order if name in candidates and not analysis.spec.is_replicated):
        node = nodes[name]
        if name in recorded or not isinstance(node, Forward) or node.draws or node.writes:
            continue
        used = (use.value for use in node.uses if analysis.of(use.value) is not Placement.REPLICATED)
        is_coupled = node.train and models[node.model].batch_coupled
        if not is_coupled and whole.issuperset(used):
            merged.add(name)
            whole.update(node.defines)
    rest = [name for name in batched if name not in merged]
    # a call or loss that no gradient needs, and whose results only nodes that run once use, is gathered
    producers = find_producers(nodes.values())
    users: dict[str, set[str]] = {}
    for name, node in nodes.items():
        for use in node.uses:
            users.setdefault(producers.get(use.value, use.value), set()).add(name)
    split = set(rest)
    for name in reversed(order):
        is_free = name in split and isinstance(nodes[name], Evaluate) and name not in recorded
        # replicas gather the rows of what couples them only: the parts of all else add up
        is_free = is_free and (not analysis.spec.is_replicated or name in analysis.coupled)
        if is_free and split.isdisjoint(users.get(name, ())):
            split.remove(name)
    return Roles(split=frozenset(split), merged=frozenset(merged), gathered=frozenset(rest) - split)
