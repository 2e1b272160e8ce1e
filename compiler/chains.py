"""The chain of an update: the gradients it is made of, and the transforms between them and its write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.causality import find_producers
from compiler.cells import is_optimizer
from compiler.ir import Node, StepGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The nodes whose values an update applies, each kind in the order in which it is met from the write back."""

    gradients: tuple[str, ...]
    transforms: tuple[str, ...] = ()
    """Whatever stands between the gradients and the write: clips, projections, sums of gradient sets."""


def find_chains(graph: StepGraph) -> Mapping[str, Chain]:
    """Return the chain of every update, in listed order."""
    producers = find_producers(graph.nodes.values())
    return {name: _find_chain(graph, name, producers) for name, node in graph.nodes.items() if is_update(node)}


def is_update(node: Node) -> bool:
    """Return whether a node applies gradients: it steps an optimizer."""
    return any(is_optimizer(write.cell) for write in node.writes)


def _find_chain(graph: StepGraph, update: str, producers: Mapping[str, str]) -> Chain:
    """Return the chain of one update: the walk back from its write ends at what differentiates."""
    gradients: dict[str, None] = {}
    transforms: dict[str, None] = {}
    pending = [producers[use.value] for use in graph.nodes[update].uses]
    while pending:
        name = pending.pop(0)
        node = graph.nodes[name]
        if node.derivative is not None:
            gradients[name] = None
        elif name not in transforms:
            transforms[name] = None
            pending.extend(producers[use.value] for use in node.uses if use.value in producers)
    return Chain(gradients=tuple(gradients), transforms=tuple(transforms))
