"""Find where each value is used for the last time, so that it can be forgotten right after."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.instructions import Judge
from compiler.ir import StepGraph


def find_releases(graph: StepGraph) -> Mapping[str, tuple[str, ...]]:
    """Return, by node, the values to forget after it: made in the step, used here last, and not returned."""
    last: dict[str, str] = {}
    for name in graph.sequence:
        node = graph.nodes[name]
        last.update((value, name) for value in node.defines)
        last.update((use.value, name) for use in node.uses if use.value in last)
    judges = (node for node in graph.nodes.values() if isinstance(node.instruction, Judge))
    verdicts = {node.verdict for node in graph.nodes.values()}  # the end of the step asks for them once more
    verdicts |= {value for node in judges for value in node.defines}
    released: dict[str, list[str]] = {}
    for value, name in last.items():
        if value not in graph.outputs and value not in graph.writers and value not in verdicts:  # a cell is no value
            released.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in released.items()}
