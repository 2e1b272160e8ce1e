"""Rows: which instructions meet gradient sets in which the gradients of tables are rows."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.facts.models import ModelFacts
from compiler.ir.instructions import Gradient, Instruction, TakeAccumulated, Transform


def mark_rows(nodes: Mapping[str, Instruction], models: Mapping[str, ModelFacts]) -> Mapping[str, Instruction]:
    """Return instructions of which those that give or take a set with rows say so."""
    if not any(each.has_rows for each in models.values()):
        return nodes
    sets: set[str] = set()
    for node in nodes.values():
        match node:
            case (
                Gradient(models=of, output=str() as output)
                | Transform(models=of, output=output)
                | TakeAccumulated(models=of, output=output)
            ):
                sets |= {output} if any(models[each].has_rows for each in of) else set()
            case _:
                pass
    return {
        name: node if sets.isdisjoint((*node.defines, *node.operands)) else replace(node, rows=True)
        for name, node in nodes.items()
    }
