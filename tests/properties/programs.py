"""Compiled programs with one thing changed: an update written too early, a graph not kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from compiler import Plan
from compiler.ir import Decision
from compiler.program import Apply, Function, Gradient, Instruction, Mode, Program, Transform
from runtime.backends.torch.emission.module import emit_module


def emit_changed(program: Program) -> str:
    """Return a program as source text."""
    return emit_module(program).text


AMONG_WRITES = {"raw", "waw", "declared", "implied"}


Excuse = Literal["", "among writes", "one tensor"]
"""Why a deferral may turn out needless: it only keeps the order of writes of the same weights, which may commute; or
what a pending gradient reads is a model of one tensor, which saves nothing of its own."""


def find_deferred(plan: Plan) -> Iterator[tuple[Function, Apply, Program, Excuse]]:
    """Yield every deferral by a hazard: its function, its write, the program without it, an excuse."""
    for function in plan.program.mode("train").functions:
        graph = plan.graphs[function.name]
        found = [one for one in graph.decisions if one.code == "DEFER" and one.because]
        late = {one.subject: _excuse(plan, one) for one in found}
        for instruction in function.instructions:
            if isinstance(instruction, Apply) and instruction.op in late:
                hurried = _with(plan.program, function, _hurry(function, instruction))
                yield function, instruction, hurried, late[instruction.op]


def _excuse(plan: Plan, decision: Decision) -> Excuse:
    rest = [reason for reason in decision.because if reason.edge not in AMONG_WRITES]
    if not rest:
        return "among writes"
    tensors = {name for name, model in plan.spec.models.items() if model.parameter is not None}
    thin = all(one.edge == "backward-war" and one.cell.partition(".")[0] in tensors for one in rest)
    return "one tensor" if thin else ""


def _hurry(function: Function, write: Apply) -> tuple[Instruction, ...]:
    """Return the instructions with a write right behind the gradients it applies."""
    rest = [one for one in function.instructions if one is not write]
    wanted = {part.gradients for part in write.parts}
    made = [index for index, one in enumerate(rest) if wanted & _defined(one)]
    return (*rest[: max(made) + 1], write, *rest[max(made) + 1 :])


def _defined(instruction: Instruction) -> set[str | None]:
    match instruction:
        case Gradient() | Transform():
            return {instruction.output}
        case _:
            return set()


def find_kept(plan: Plan) -> Iterator[tuple[Function, Gradient, Program]]:
    """Yield every gradient that keeps its graph, and the program in which it does not."""
    for function in plan.program.mode("train").functions:
        for instruction in function.instructions:
            if isinstance(instruction, Gradient) and instruction.retain_graph and not instruction.create_graph:
                freed = replace(instruction, retain_graph=False)
                changed = tuple(freed if one is instruction else one for one in function.instructions)
                yield function, instruction, _with(plan.program, function, changed)


def _with(program: Program, function: Function, instructions: tuple[Instruction, ...]) -> Program:
    """Return a program with other instructions in one of its functions."""
    changed = replace(function, instructions=instructions)
    train: Mode = "train"
    modes = tuple(
        replace(mode, functions=tuple(changed if one is function else one for one in mode.functions))
        if mode.mode == train
        else mode
        for mode in program.modes
    )
    return replace(program, modes=modes)
