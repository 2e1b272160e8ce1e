"""The plan as text: every function line by line, then the decisions in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compiler.facts.parameters import find_known_names, find_matching
from compiler.ir.instructions import Apply, Commit, Emit, Instruction, Release
from compiler.ir.program import Function, Gate, GroupDecl, Program, group_of
from compiler.ir.value import Read, Ref, ScheduleDecl, Write
from compiler.passes.datasets import format_datasets, is_particular
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.formula import Lines
from compiler.plan.timetable import describe_moments, find_schedules, format_end, format_entry, format_schedule
from compiler.plan.turns import describe_turns
from graphspec.diagnostics import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group of a model that a mode updates; ``parameters`` is None where only the built step knows their names."""

    model: str
    group: GroupDecl
    parameters: tuple[str, ...] | None
    gate: Gate | None = None
    """Open as long as it is frozen; None where it is frozen for ever, or never."""


def find_groups(program: Program, mode: str) -> Iterator[GroupRow]:
    """Yield the groups of the models that a mode updates."""
    instructions = [each for function in program.mode(mode).functions for each in function.instructions]
    applied = {part.optimizer for each in instructions if isinstance(each, Apply) for part in each.parts}
    gates = {gate.op: gate for gate in program.mode(mode).gates}
    known = find_known_names(program.models)
    groups = [group for each in program.optimizers if each.name in applied for group in each.groups]
    order = {model.name: place for place, model in enumerate(program.models)}
    seen: list[GroupDecl] = []
    for group in sorted(groups, key=lambda each: (order[each.model], each.index)):
        if group not in seen:
            seen.append(group)
            names = find_matching(group.match, known[group.model]) if group.model in known else None
            gate = gates.get(group_of(group.model, group.index))
            yield GroupRow(model=group.model, group=group, parameters=names, gate=gate)


def format_group(row: GroupRow) -> str:
    """Return a group in words: `net: 0.bias, 2.bias: weight_decay 0 (fit 'bias$')`."""
    group = row.group
    changes = {
        "frozen": group.frozen,
        f"frozen {row.gate and format_end(row.gate)}": row.gate is not None,
        f"lr times {format_change(group.lr_scale)}": group.lr_scale != 1.0,
        f"weight_decay {format_change(group.weight_decay or 0)}": group.weight_decay is not None,
    }
    text = ", ".join(change for change, is_made in changes.items() if is_made) or "as the others"
    names = "what the class calls so" if row.parameters is None else ", ".join(row.parameters)
    return f"{row.model}: {names}: {text} (fit '{group.match}')"


def format_change(number: float | ScheduleDecl) -> str:
    """Return what is different in words: a number, or `linear from 1 to 0.1 over 100 updates`."""
    return format_schedule(number) if isinstance(number, ScheduleDecl) else f"{number:g}"


def flags_of(instruction: Instruction) -> tuple[str, ...]:
    """Return what is special about how an instruction runs."""
    detached = (each.operand for each in instruction.passed if isinstance(each.operand, Ref) and each.operand.detach)
    return (
        *instruction.flags,
        *((f"if {format_commit(instruction.commits)}",) if instruction.commits else ()),
        *(f"{ref.name} detached" for ref in detached),
    )


def format_commit(commits: Commit) -> str:
    """Return the verdicts under which a write takes place: `step_d.finite and step_g.finite`."""
    return " or ".join(" and ".join(way) for way in commits)


def cells_of(instruction: Instruction) -> str:
    """Return the versions an instruction reads and writes: ``discriminator.params@0 -> @1``; optimizers left out."""
    written = {at.cell: at for at in instruction.writes}
    shown = [
        f"{at} -> @{written[at.cell].version}" if at.cell in written else str(at) for at in _models(instruction.reads)
    ]
    read = {at.cell for at in instruction.reads}
    return ", ".join([*shown, *(f"-> {at}" for at in _models(instruction.writes) if at.cell not in read)])


def _models(versions: Iterable[Read | Write]) -> list[Read | Write]:
    """Return the accesses to models."""
    return [at for at in versions if at.cell.kind != "optimizer"]


SHOWN = ("DEFER", "RETAIN", "CREATE_GRAPH", "SNAPSHOT", "RECOMPUTE", "FREEZE", "NO_GRAD", "MERGE")
"""Decisions that the text lists; `explain` lists all."""
WIDEST = 60


def print_plan(plan: CompiledStep, mode: str) -> str:
    """Return the plan of a mode as text."""
    program = plan.program
    lines = [f"{program.name}: {mode} step for {program.backend}, order {program.order}"]
    turns = describe_turns(program.mode(mode), program)
    for function in program.mode(mode).functions:
        lines += ["", *_print_function(plan, function, turns.get(function.name, ""))]
    schedules = [
        f"{'.'.join(part for part in (entry.name, entry.option) if part)}: {format_entry(entry)}"
        for entry in find_schedules(program, mode)
    ]
    sections: dict[str, Iterable[str]] = {
        "groups": map(format_group, find_groups(program, mode)),
        "schedules": schedules,
        "moments": describe_moments(plan, mode),
        "not counted yet (the steps above are those without it)": (each.message for each in plan.pending),
        "warnings": (f"{problem.code} {problem.message}" for problem in plan.warnings),
        "notes": plan.notes,
    }
    for title, sentences in sections.items():
        entries = [f"  {sentence}" for sentence in sentences]
        lines += ["", title, *entries] if entries else []
    return "\n".join(map(escape, lines)) + "\n"


def describe_function(plan: CompiledStep, function: Function, turns: str) -> str:
    """Return what a function writes, and in which steps it runs."""
    averaged = [gate.op for gate in plan.program.mode(function.mode).gates if gate.clock == "averaged"]
    used = ", ".join(op for op in function.gated if op in averaged)
    when = f"; once there is {used}" if used else ""
    when += f"; for {format_datasets(function.datasets)}" if is_particular(function, plan.program) else ""
    when = f"; {turns}{when}" if turns else when
    return f"writes: {', '.join(function.active) or 'nothing'}{when}"


def _print_function(plan: CompiledStep, function: Function, turns: str) -> Iterator[str]:
    """Yield the lines of one function, which runs in some steps."""
    yield f"{function.name}  ({describe_function(plan, function, turns)})"
    rows: list[tuple[str, str, str]] = []
    lines = Lines.of(function.instructions)
    for instruction in (each for each in function.instructions if each.has_line):
        if isinstance(instruction, Emit):
            rows.append(("return", instruction.phrase, ""))
        elif not isinstance(instruction, Release):
            flags = [flag for each in lines.find(instruction) for flag in flags_of(each)]
            parts = (cells_of(instruction), f"[{', '.join(flags)}]" if flags else "")
            rows.append((instruction.kind(), lines.write(instruction), "  ".join(filter(None, parts))))
    column = 1 + max((9, *(len(kind) for kind, _, _ in rows)))
    width = min(max((len(text) for _, text, _ in rows), default=0), WIDEST)
    for number, (kind, text, cells) in enumerate(rows, start=1):
        yield f"  {number:3d}  {kind:<{column}}{text:<{width}}  {cells}".rstrip()
    decisions = [decision for decision in plan.graphs[function.name].decisions if decision.code in SHOWN]
    if not any(decision.code == "DEFER" for decision in decisions):
        yield "  no update is deferred"
    for decision in decisions:
        yield f"  {decision.code:<13}{decision.text}"
