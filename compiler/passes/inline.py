"""Which parts of an expression are written into the line of what reads them, rather than on a line of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from msgspec.structs import replace

from compiler.ir.instructions import Evaluate, Instruction
from compiler.ir.step_graph import StepGraph
from graphspec.declare.options import BATCH


def inline_parts(graph: StepGraph) -> StepGraph:
    """Return a scheduled graph in which the parts of expressions know the value into whose line they are written.

    A part then runs where the line of the whole expression stands, so nothing in between may write a state that it
    reads. A part whose value is read more than once is on a line of its own, too.
    """
    place = graph.position
    readers: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for use in node.uses:
            readers.setdefault(use.value, []).append(node.id)
    lines: dict[str, str] = {}
    """By node: that in whose line it stands in the end."""
    nodes, returned = dict(graph.nodes), frozenset(graph.outputs)
    for name in reversed(graph.sequence):
        node = graph.nodes[name]
        if not _holds_parts(node) or len(node.outputs) != 1 or node.outputs[0] in returned:
            continue
        reader, *others = readers.get(node.outputs[0], [""])
        if others or not reader:
            continue
        user, line = graph.nodes[reader], lines.get(reader, reader)
        if not _holds_parts(user) or (user.expr, user.micro_batch) != (node.expr, node.micro_batch):
            continue
        between = graph.sequence[place[name] + 1 : place[line]] if node.reads else ()
        if not _writes_any(node, (graph.nodes[each] for each in between)):
            nodes[name], lines[name] = replace(node, into=user.outputs[0]), line
    return replace(graph, nodes=nodes)


def _holds_parts(node: Instruction) -> TypeGuard[Evaluate]:
    """Return whether a node is of an expression, reads each of its operands once, and waits for nothing."""
    if not isinstance(node, Evaluate) or not node.expr or node.counted or node.message:
        return False
    # A shape with `batch` is worked out from the operand, which is read twice.
    return not any(isinstance(each, tuple) and BATCH in each for each in node.options.values())


def _writes_any(node: Instruction, others: Iterable[Instruction]) -> bool:
    """Return whether one of some nodes writes what a node reads."""
    cells = {read.cell for read in node.reads}
    return any(write.cell in cells for other in others for write in other.writes)
