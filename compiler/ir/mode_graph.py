"""The graph that the checks examine, and small queries they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from compiler.facts.models import ModelFacts
from compiler.ir.digraph import Causality
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, GradientPath, find_producers
from compiler.ir.value import Derivative
from compiler.passes.order import close_ordering
from compiler.passes.paths import find_every_path
from compiler.types.values import Values
from graphspec.declare.graph import GraphSpec


class ModeGraph(Struct, frozen=True, kw_only=True, dict=True):
    """One mode of a spec before it is known which ops fire together."""

    spec: GraphSpec
    models: Mapping[str, ModelFacts]
    nodes: Mapping[str, Instruction]
    values: Values
    """What is known of the values of the spec."""
    everything: Mapping[str, Instruction]
    """The nodes of the whole document, those that do not run in this mode included."""
    ordering: tuple[Edge, ...]
    """Happens-before edges over all of them."""

    @cached_property
    def causality(self) -> Causality:
        """Return which node happens before which; the edges must have no cycle."""
        return close_ordering(self.everything, self.ordering)

    @cached_property
    def producers(self) -> Mapping[str, str]:
        """Return the node that defines each value."""
        return find_producers(self.nodes.values())

    def gradients(self) -> Iterator[tuple[Instruction, Derivative]]:
        """Yield every node that differentiates, with what it differentiates."""
        for node in self.nodes.values():
            if node.derivative is not None:
                yield node, node.derivative

    @cached_property
    def paths(self) -> Mapping[str, GradientPath]:
        """Return the path of every gradient of the mode."""
        return find_every_path(self.nodes, self.producers, self.causality)
