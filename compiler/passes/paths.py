"""Find P(g) of every gradient: the nodes on a differentiable path from its targets to its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.cell import Cell
from compiler.ir.digraph import Causality
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import GradientPath, StepGraph
from compiler.ir.value import Derivative


def find_paths(graph: StepGraph) -> StepGraph:
    """Return the graph with the path of every gradient."""
    return replace(graph, paths=find_every_path(graph.nodes, graph.producers, graph.causality))


def find_every_path(
    nodes: Mapping[str, Instruction], producers: Mapping[str, str], causality: Causality
) -> Mapping[str, GradientPath]:
    """Return the path of every gradient, inner gradients first, since outer paths contain theirs."""
    derivatives = {name: node.derivative for name, node in nodes.items() if node.derivative is not None}
    left = Counter(derivative.loss for derivative in derivatives.values())
    of_loss: dict[str, LossPaths] = {}
    paths: dict[str, GradientPath] = {}
    for name in causality.sort(derivatives):
        derivative = derivatives[name]
        if derivative.loss not in of_loss:
            of_loss[derivative.loss] = LossPaths.of(derivative.loss, nodes, producers, paths)
        paths[name] = of_loss[derivative.loss].find_path(derivative)
        left[derivative.loss] -= 1
        if not left[derivative.loss]:
            del of_loss[derivative.loss]
    return paths


class LossPaths(Struct, frozen=True, kw_only=True):
    """What leads to a loss, in which the paths of all gradients of the loss lie."""

    nodes: Mapping[str, Instruction]
    producers: Mapping[str, str]
    inner: Mapping[str, GradientPath]
    """The paths of the gradients that may be differentiated again."""
    reaching: Collection[str]
    """All nodes that lead to the loss."""
    after: Mapping[str, Sequence[str]]
    """By node, what depends on its results."""
    readers: Mapping[Cell, Sequence[str]]
    takers: Mapping[str, Sequence[str]]
    """By value, the nodes that it enters."""
    makers: Mapping[str, Sequence[str]]
    """By value, such as a tap: the node that makes other results of it, by which it leads to the loss."""

    @classmethod
    def of(
        cls,
        loss: str,
        nodes: Mapping[str, Instruction],
        producers: Mapping[str, str],
        inner: Mapping[str, GradientPath],
    ) -> LossPaths:
        """Return what leads to a loss, given the paths of the gradients before it."""
        reaching = find_reaching(producers[loss], nodes, producers, inner) if loss in producers else {}
        after: dict[str, list[str]] = {}
        readers: dict[Cell, list[str]] = {}
        takers: dict[str, list[str]] = {}
        makers: dict[str, list[str]] = {}
        for name in reaching:
            for read in nodes[name].reads:
                if not read.constant:
                    readers.setdefault(read.cell, []).append(name)
            for use in nodes[name].uses:
                if use.differentiable:
                    takers.setdefault(use.value, []).append(name)
                    after.setdefault(producers.get(use.value, ""), []).append(name)
            for member in inner[name].nodes if name in inner else ():
                after.setdefault(member, []).append(name)
        for name in reaching:
            node = nodes[name]
            for value in node.inner:
                if any(other in takers or other == loss for other in node.defines if other != value):
                    makers.setdefault(value, []).append(name)
        return cls(
            nodes=nodes,
            producers=producers,
            inner=inner,
            reaching=reaching,
            after=after,
            readers=readers,
            takers=takers,
            makers=makers,
        )

    def find_path(self, derivative: Derivative) -> GradientPath:
        """Return the path of one derivative of the loss.

        A gradient on the path brings its whole inner path along: differentiating it again reads all of that.
        """
        begun, begins = set[tuple[str, str]](), set[str]()
        for cell in derivative.cells:
            begins.update(self.readers.get(cell, ()))
        for value in derivative.values:
            begins.update(self.takers.get(value, ()), self.makers.get(value, ()))
            begun.update((value, name) for name in self.makers.get(value, ()))
        on_path = self.find_dependent(begins)
        second = [self.inner[name] for name in on_path if name in self.inner]
        uses = {
            (use.value, name)
            for name in on_path
            for use in self.nodes[name].uses
            if use.differentiable and (use.value in derivative.values or self.producers.get(use.value) in on_path)
        }
        return GradientPath(
            nodes=frozenset(on_path).union(*(path.nodes for path in second)),
            uses=frozenset(uses | begun).union(*(path.uses for path in second)),
        )

    def find_dependent(self, begins: Collection[str]) -> Set[str]:
        """Return some nodes that lead to the loss, with those that depend on their results."""
        found, pending = {*begins}, [*begins]
        while pending:
            fresh = [name for name in self.after.get(pending.pop(), ()) if name not in found]
            found.update(fresh)
            pending += fresh
        return found


def find_reaching(
    loss: str, nodes: Mapping[str, Instruction], producers: Mapping[str, str], inner: Mapping[str, GradientPath]
) -> dict[str, None]:
    """Return the nodes from which a differentiable path leads to the loss, the loss first."""
    reaching: dict[str, None] = {}
    pending = [loss]
    while pending:
        name = pending.pop()
        if name not in reaching and nodes[name].differentiable:
            reaching[name] = None
            pending.extend(inner[name].nodes if name in inner else ())
            for use in nodes[name].uses:
                if use.differentiable and use.value in producers:
                    pending.append(producers[use.value])
    return reaching
