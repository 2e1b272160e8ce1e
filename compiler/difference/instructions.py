"""Compare the instructions of two functions: which there are, what they do, and which versions they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.cells import is_optimizer
from compiler.difference.records import Alteration, Aspect, Both, Row
from compiler.explain import find_instructions, tell_version
from compiler.instructions import Instruction
from compiler.ir import Node, StepGraph
from compiler.operands import CellVersion
from compiler.phrases import cells_of, flags_of
from compiler.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One function: its graph, and its finished instructions by node, in order."""

    graph: StepGraph
    instructions: Mapping[str, Instruction]

    @property
    def order(self) -> tuple[str, ...]:
        """Return the nodes in the order in which they run."""
        return self.graph.sequence


def open_sheet(plan: Plan, function: str) -> Sheet:
    """Return a function of a plan."""
    graph = plan.graphs[function]
    return Sheet(graph=graph, instructions=find_instructions(plan, graph, function))


def compare_rows(old: Sheet, new: Sheet) -> Both[Row]:
    """Return the instructions that only one of two functions has, in the order in which they run."""
    return Both(appeared=tuple(_find_missing(new, old)), vanished=tuple(_find_missing(old, new)))


def _find_missing(here: Sheet, there: Sheet) -> Iterator[Row]:
    """Yield what is here and not there."""
    for name in here.order:
        if name not in there.instructions:
            yield _show(here.graph.nodes[name], here.instructions[name])


def _show(node: Node, instruction: Instruction) -> Row:
    return Row(
        kind=instruction.kind(),
        op=node.op,
        label=node.label,
        text=instruction.phrase,
        cells=cells_of(instruction),
        flags=flags_of(instruction),
    )


def find_alterations(old: Sheet, new: Sheet) -> Iterator[Alteration]:
    """Yield what is different about the instructions that both functions have."""
    for name in new.order:
        if name in old.instructions:
            node, before, after = new.graph.nodes[name], old.instructions[name], new.instructions[name]
            if before.phrase != after.phrase:
                yield _alter(node, "call", before.phrase, after.phrase)
            yield from _find_versions(node, before, after, new.graph)
            if set(flags_of(before)) != set(flags_of(after)):
                yield _alter(node, "flags", ", ".join(flags_of(before)), ", ".join(flags_of(after)))


def _find_versions(node: Node, before: Instruction, after: Instruction, graph: StepGraph) -> Iterator[Alteration]:
    """Yield the cells that an instruction reads at another version; what a gradient reads follows from the forwards."""
    if node.derivative is not None:
        return
    old, new = _find_reads(before), _find_reads(after)
    for cell in dict.fromkeys((*old, *new)):
        if old.get(cell) != new.get(cell):
            why = tell_version(graph, new[cell]) if cell in new else ""
            yield _alter(node, "reads", _spell(old.get(cell)), _spell(new.get(cell)), why.lstrip(":, "))


def _find_reads(instruction: Instruction) -> dict[str, CellVersion]:
    return {at.cell: at for at in instruction.reads if not is_optimizer(at.cell)}


def _spell(at: CellVersion | None) -> str:
    return "" if at is None else str(at)


def _alter(node: Node, aspect: Aspect, before: str, after: str, why: str = "") -> Alteration:
    return Alteration(label=node.label, op=node.op, aspect=aspect, before=before, after=after, why=why)
