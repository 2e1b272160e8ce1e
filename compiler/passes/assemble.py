"""Assemble a function: turn the scheduled nodes into instructions with every flag and version filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.cell import state_of
from compiler.ir.instructions import (
    Adapt,
    CheckFinite,
    Emit,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Recomputed,
    Release,
    ResolveOverflow,
    RestoreAccumulator,
)
from compiler.ir.program import Function
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Argument, Read, Ref, Use
from compiler.passes.flags import is_recomputed
from compiler.types.dimension import UNKNOWN, TensorType

LARGE = 1024
"""How many numbers a value must have for each row to be worth a line of code that forgets it."""


def find_releases(graph: StepGraph) -> Mapping[str, tuple[str, ...]]:
    """Return, by node, the values to forget after it: made in the step, used here last, and not returned."""
    last: dict[str, str] = {}
    inlined: dict[str, list[Use]] = {}
    """By value: what is used by the parts that are written into its line."""
    for name in graph.sequence:
        node = graph.nodes[name]
        # what has been sent is no longer needed, unless a gradient goes back to it
        is_received = any(use.value == node.message for use in node.uses) and name not in graph.flags.recorded
        own = [use for use in node.uses if not is_received or use.value == node.message]
        uses = [*own, *(use for value in node.defines for use in inlined.pop(value, ()))]
        if isinstance(node, Evaluate) and node.into:
            inlined.setdefault(node.into, []).extend(uses)
            continue
        last.update(dict.fromkeys(node.defines, name))
        last.update((use.value, name) for use in uses if use.value in last)
    kept = {*graph.outputs}
    for node in graph.nodes.values():
        kept.add(node.verdict)  # the end of the step asks for it once more
        kept.update(node.defines if isinstance(node, CheckFinite) or node.combined else ())
    released: dict[str, list[str]] = {}
    for value, name in last.items():
        if value not in kept:
            released.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in released.items()}


SHOWN_DECISIONS = ("DEFER", "RETAIN", "CREATE_GRAPH", "SNAPSHOT")
"""Decisions worth a comment in generated code; the rest is visible in the code itself."""


def is_large(found: TensorType) -> bool:
    """Return whether a value has many numbers for each row, as far as is known."""
    return prod(size for size in found.shape or () if isinstance(size, int)) >= LARGE


def assemble(graph: StepGraph, name: str, types: Mapping[str, TensorType]) -> Function:
    """Return the straight-line function of a scheduled graph, given the shapes and types of values."""
    releases, facts = find_releases(graph), NodeFacts.of(graph)
    parts, part = max((node.micro_batch for node in graph.nodes.values()), default=0), 0
    instructions: list[Instruction] = []
    for node in map(graph.nodes.__getitem__, graph.sequence):
        begins = node.has_line and node.micro_batch not in (0, part)  # a stretch of another micro-batch
        part = node.micro_batch if begins else part
        instructions.append(_finish(node, graph, facts, (f"micro-batch {part} of {parts}",) if begins else ()))
        values = releases.get(node.id, ())
        if values:
            large = (value for value in values if is_large(types.get(graph.wholes.get(value, value), UNKNOWN)))
            instructions.append(Release(op=node.op, values=values, large=tuple(large)))
    instructions.extend(_resolve(graph))
    there = graph.states.union(*(node.defines for node in graph.nodes.values()))
    returned = tuple(filter(there.__contains__, graph.outputs))
    states = map(state_of, filter(graph.states.__contains__, returned))
    reads = tuple(Read(cell=cell, version=len(graph.writers.get(cell, ()))) for cell in states)
    instructions.append(Emit(op="outputs", reads=reads, values=returned))
    return Function(
        mode=graph.mode,
        name=name,
        active=graph.active,
        gated=graph.gated,
        instructions=tuple(instructions),
        datasets=graph.datasets,
    )


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What is found out about a graph as a whole, by node."""

    notes: Mapping[str, tuple[str, ...]]
    """The decisions worth a comment."""
    carried: frozenset[tuple[str, str]]
    """(value, node): the use is on the path of some gradient."""

    @classmethod
    def of(cls, graph: StepGraph) -> NodeFacts:
        """Return what is found out about a scheduled graph."""
        notes: dict[str, list[str]] = {}
        for each in graph.decisions:
            if each.code in SHOWN_DECISIONS:
                notes.setdefault(each.node, []).append(each.text)
        return cls(
            notes={name: tuple(texts) for name, texts in notes.items()},
            carried=frozenset[tuple[str, str]]().union(*(path.uses for path in graph.paths.values())),
        )


def _finish(node: Instruction, graph: StepGraph, facts: NodeFacts, notes: tuple[str, ...]) -> Instruction:
    """Return a node's instruction with what the passes found out about it."""
    flags = graph.flags
    recorded = node.id in flags.recorded
    notes, commits = (*notes, *facts.notes.get(node.id, ())), graph.commits.get(node.id, ())
    match node:
        case Forward():
            return replace(
                node,
                notes=notes,
                weights=node.weights and _detach_use(node, node.weights, graph),
                arguments=_detach(node, node.arguments, graph),
                graph=recorded,
                frozen=node.id in flags.frozen,
                kept=node.id in flags.kept,
                snapshot=graph.snapshots.get(node.id, "none") if node.snapshot == "none" else node.snapshot,
                # inner results from which gradients of its others are taken
                begun=tuple(each for each in node.inner if (each, node.id) in facts.carried),
                checkpoint=node.checkpoint and recorded,
            )
        case Evaluate():
            return replace(node, notes=notes, arguments=_detach(node, node.arguments, graph), graph=recorded)
        case Adapt():
            is_carried = (node.gradients.name, node.id) in facts.carried
            gradients = replace(node.gradients, detach=recorded and not is_carried)
            base = node.base and _detach_use(node, node.base, graph)
            return replace(node, notes=notes, base=base, gradients=gradients, graph=recorded)
        case Gradient():
            return replace(
                node,
                notes=notes,
                retain_graph=node.id in flags.retained,
                create_graph=node.id in flags.created,
                recomputed=find_recomputed(node, graph),
            )
        case RestoreAccumulator():
            return replace(node, notes=notes, unless=commits)
        case _:
            return replace(node, notes=notes, commits=commits) if notes or commits else node


def find_recomputed(node: Instruction, graph: StepGraph) -> tuple[Recomputed, ...]:
    """Return the models whose forwards a gradient recomputes, with the modes of those forwards."""
    forwards = map(graph.nodes.__getitem__, graph.paths[node.id].nodes)
    again = [each for each in forwards if isinstance(each, Forward) and is_recomputed(each)]
    again.sort(key=lambda call: graph.position[call.id])
    return tuple(
        dict.fromkeys(Recomputed(model=each.model, train=each.train, kept=bool(each.writes)) for each in again)
    )


def _resolve(graph: StepGraph) -> Iterator[ResolveOverflow]:
    """Yield the end of a step of a mode in which there are verdicts."""
    if graph.checked:
        verdicts = find_step_verdicts(graph)
        checks = (node for node in graph.nodes.values() if isinstance(node, CheckFinite) and node.output in verdicts)
        # What may be skipped, by gate: writes, and steps of windows.
        conditional = (
            (node.admission, graph.commits[node.id])
            for node in graph.nodes.values()
            if node.id in graph.commits and (node.id == node.op or isinstance(node, RestoreAccumulator))
        )
        yield ResolveOverflow(
            op="overflow",
            verdicts=verdicts,
            conditional=tuple(dict.fromkeys(conditional)),
            scaled=graph.scaled,
            fatal=tuple((node.op, node.key) for node in checks if node.overflow == "error"),
        )


def find_step_verdicts(graph: StepGraph) -> tuple[str, ...]:
    """Return the verdicts over the gradients of a step, in the order in which they are known."""
    checks = (each for name in graph.sequence if isinstance(each := graph.nodes[name], CheckFinite))
    return tuple(each.output for each in checks if each.scope != "own")


def _detach(node: Instruction, arguments: tuple[Argument, ...], graph: StepGraph) -> tuple[Argument, ...]:
    """Return the arguments with those references detached through which no gradient is wanted."""
    return tuple(
        replace(argument, operand=_detach_use(node, argument.operand, graph))
        if isinstance(argument.operand, Ref)
        else argument
        for argument in arguments
    )


def _detach_use(node: Instruction, used: Ref, graph: StepGraph) -> Ref:
    """Return a reference, detached if no gradient is wanted through it."""
    return replace(used, detach=True) if (used.name, node.id) in graph.flags.detached else used
