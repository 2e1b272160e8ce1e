"""Reading of states: a use of a state's name is a read of its cell, at the version of the node's causal past."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from compiler.cells import state_of
from compiler.ir import Node, Read


def read_states(node: Node, states: Collection[str]) -> Node:
    """Return a node whose uses of states are reads, too; no gradient flows back into what an earlier step left.

    A graph keeps the tensor that was read, which nobody writes over: an `assign` puts another in its place. So the
    read is not ``saved``, and no write waits for a gradient.
    """
    used = tuple(dict.fromkeys(use.value for use in node.uses if use.value in states))
    if not used:
        return node
    uses = tuple(replace(use, differentiable=False) if use.value in states else use for use in node.uses)
    return replace(node, uses=uses, reads=(*node.reads, *(Read(cell=state_of(name)) for name in used)))
