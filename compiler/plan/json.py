"""The plan as JSON: the published format (schemas/plan.schema.json)."""

from __future__ import annotations

from compiler.ir.diagnose import place_in
from compiler.ir.instructions import Instruction, Restore, Transform
from compiler.ir.instructions.base import export_commit
from compiler.ir.program import Function
from compiler.ir.step_graph import Because, Decision
from compiler.ir.value import Json, Object, ScheduleDecl
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.text import GroupRow, find_groups, format_change
from compiler.plan.timetable import Entry, find_schedules, format_entry
from graphspec.diagnostics import Diagnostic


def export_plan(plan: CompiledStep, mode: str) -> Object:
    """Return the plan of a mode as an object of the published format."""
    program = plan.program
    decisions: dict[str, Object] = {}
    for graph in plan.graphs_of(mode).values():
        for decision in graph.decisions:
            decisions.setdefault(f"{decision.code} {decision.text}", _export_decision(decision))
    return {
        "plan": 1,
        "name": program.name,
        "backend": program.backend,
        "mode": mode,
        "order": program.order,
        "functions": [_export_function(function) for function in program.mode(mode).functions],
        "groups": [_export_group(row) for row in find_groups(program, mode)],
        "schedules": [_export_schedule(found) for found in find_schedules(program, mode)],
        "decisions": list(decisions.values()),
        "warnings": [_export_warning(plan, problem) for problem in (*plan.warnings, *plan.pending)],
    }


def _export_schedule(entry: Entry) -> Object:
    """Return one schedule: whose it is, its kind and clock, and all of it in words."""
    schedule = entry.schedule
    names: Object = {entry.owner: entry.name, **({"option": entry.option} if entry.option else {})}
    return {**names, "kind": schedule.kind, "clock": schedule.clock, "text": format_entry(entry)}


def _export_group(row: GroupRow) -> Object:
    """Return one group: its model, pattern and parameters (null where a class names them), and what is different."""
    group = row.group
    names: Json = None if row.parameters is None else [*row.parameters]
    found: Object = {"model": row.model, "match": group.match, "parameters": names}
    found |= {"lr_scale": _export_change(group.lr_scale), "weight_decay": _export_change(group.weight_decay)}
    return {**found, "frozen": group.frozen, "frozen_until": row.until}


def _export_change(number: float | ScheduleDecl | None) -> Json:
    """Return a number of a group; a schedule in words."""
    return format_change(number) if isinstance(number, ScheduleDecl) else number


def _export_function(function: Function) -> Object:
    """Return one function."""
    datasets: Object = {"datasets": [each or None for each in function.datasets]} if function.datasets else {}
    return {
        "name": function.name,
        "active": list(function.active),
        **datasets,
        "instructions": [export_instruction(instruction) for instruction in function.instructions],
    }


def export_instruction(instruction: Instruction) -> Object:
    """Return one instruction: kind, op, accesses, and what its kind adds."""
    common: Object = {"kind": instruction.kind(), "op": instruction.op}
    if instruction.reads:
        common["reads"] = [str(at) for at in instruction.reads]
    if instruction.writes:
        common["writes"] = [str(at) for at in instruction.writes]
    if instruction.commits:
        common["commits"] = export_commit(instruction.commits)
    if isinstance(instruction, Transform | Restore) and instruction.unless:
        common["unless"] = export_commit(instruction.unless)
    return {**common, **instruction.export()}


def _export_decision(decision: Decision) -> Object:
    """Return one decision with its reasons."""
    return {
        "code": decision.code,
        "subject": decision.subject,
        "text": decision.text,
        "because": [_export_reason(reason) for reason in decision.because],
    }


def _export_reason(reason: Because) -> Object:
    """Return one reason."""
    return {
        "edge": reason.edge,
        "op": reason.op,
        "cell": reason.cell,
        "through": list(reason.through),
        "place": reason.place,
    }


def _export_warning(plan: CompiledStep, problem: Diagnostic) -> Object:
    """Return one warning."""
    op, place = _op_at(plan, problem), place_in(problem.span)
    return {"code": problem.code, "op": op, "text": problem.message, "place": place}


def _op_at(plan: CompiledStep, problem: Diagnostic) -> str:
    """Return the op a diagnostic points into: the last one declared at or before its place."""
    keys = ((name, plan.spec.span("ops", name, key=True)) for name in plan.spec.ops)
    before = [
        (key.line, key.column, name)
        for name, key in keys
        if key is not None
        and problem.span is not None
        and (key.line, key.column) <= (problem.span.line, problem.span.column)
    ]
    return max(before)[2] if before else ""
