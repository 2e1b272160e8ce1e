"""The plan as text: every function line by line, then the decisions in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compiler.grouping import find_groups, tell_group
from compiler.instructions import Emit, Instruction, Release
from compiler.phrases import cells_of, flags_of
from compiler.program import Function
from compiler.timetable import find_schedules, tell_entry, tell_moments
from compiler.turns import is_particular, tell_datasets
from graphspec.excerpts import escape

if TYPE_CHECKING:
    from compiler.plan import Plan

SHOWN = ("DEFER", "RETAIN", "CREATE_GRAPH", "SNAPSHOT", "RECOMPUTE", "FREEZE", "NO_GRAD", "MERGE")
"""Decisions that the text lists; `explain` tells the others too."""
WIDEST = 60


def print_plan(plan: Plan, mode: str) -> str:
    """Return the plan of a mode as text."""
    program = plan.program
    lines = [f"{program.name}: {mode} step for {program.backend}, order {program.order}"]
    for function in program.mode(mode).functions:
        lines += ["", *_print_function(plan, function)]
    lines += _print_timetable(plan, mode)
    if plan.pending:
        messages = (f"  {each.message}" for each in plan.pending)
        lines += ["", "not counted yet (the steps above are those without it)", *messages]
    if plan.warnings:
        lines += ["", "warnings", *(f"  {problem.code} {problem.message}" for problem in plan.warnings)]
    if plan.notes:
        lines += ["", "notes", *(f"  {note}" for note in plan.notes)]
    return "\n".join(map(escape, lines)) + "\n"


def _print_timetable(plan: Plan, mode: str) -> Iterator[str]:
    """Yield the schedules with their clocks, and the moments that the pace of the run gives, where there are any."""
    schedules = [
        f"  {'.'.join(part for part in (entry.name, entry.option) if part)}: {tell_entry(entry)}"
        for entry in find_schedules(plan.program, mode)
    ]
    moments = [f"  {sentence}" for sentence in tell_moments(plan, mode)]
    groups = [f"  {tell_group(row)}" for row in find_groups(plan.program, mode)]
    for title, entries in (("groups", groups), ("schedules", schedules), ("moments", moments)):
        yield from ("", title, *entries) if entries else ()


def _print_function(plan: Plan, function: Function) -> Iterator[str]:
    """Yield the lines of one function."""
    averaged = [gate.op for gate in plan.program.mode(function.mode).gates if gate.clock == "averaged"]
    used = ", ".join(op for op in function.gated if op in averaged)
    when = f"; once there is {used}" if used else ""
    when += f"; for {tell_datasets(function.datasets)}" if is_particular(function, plan.program) else ""
    yield f"{function.name}  (writes: {', '.join(function.active) or 'nothing'}{when})"
    rows = [_row(instruction) for instruction in function.instructions if not isinstance(instruction, Release)]
    width = min(max((len(row[1]) for row in rows), default=0), WIDEST)
    for number, (kind, text, cells) in enumerate(rows, start=1):
        yield f"  {number:3d}  {kind:<10}{text:<{width}}  {cells}".rstrip()
    decisions = [decision for decision in plan.graphs[function.name].decisions if decision.code in SHOWN]
    if not any(decision.code == "DEFER" for decision in decisions):
        yield "  no update is deferred"
    for decision in decisions:
        yield f"  {decision.code:<13}{decision.text}"


def _row(instruction: Instruction) -> tuple[str, str, str]:
    """Return kind, phrase, and cells with flags of an instruction."""
    if isinstance(instruction, Emit):
        return "return", instruction.phrase, ""
    flags = flags_of(instruction)
    shown = f"[{', '.join(flags)}]" if flags else ""
    return (
        instruction.kind(),
        instruction.phrase,
        "  ".join(part for part in (cells_of(instruction), shown) if part),
    )
