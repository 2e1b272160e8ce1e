"""The plan as JSON: the published format (schemas/plan.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from compiler.diagnose import place_in
from compiler.grouping import GroupRow, find_groups, tell_change
from compiler.instructions import (
    Apply,
    Assign,
    Blend,
    Collect,
    Commit,
    Drop,
    Emit,
    Evaluate,
    Forward,
    Gather,
    Gradient,
    Instruction,
    Judge,
    Random,
    Release,
    Schedule,
    Settle,
    Store,
    Transform,
)
from compiler.ir import Because, Decision
from compiler.operands import Argument, Constant, Ref, Scheduled, ScheduleDecl
from compiler.phrases import arguments_of, kind_of, tell_resting
from compiler.program import Function
from compiler.terms import tell_penalty, tell_projection
from compiler.timetable import Entry, find_schedules, tell_entry
from graphspec.diagnostics import Diagnostic

if TYPE_CHECKING:
    from compiler.plan import Plan

Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Object: TypeAlias = dict[str, Json]


def export_plan(plan: Plan, mode: str) -> Object:
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
        "warnings": [_export_warning(plan, problem) for problem in plan.warnings],
    }


def _export_schedule(entry: Entry) -> Object:
    """Return one schedule: whose it is, its kind and clock, and all of it in words."""
    schedule = entry.schedule
    names: Object = {entry.owner: entry.name, **({"option": entry.option} if entry.option else {})}
    return {**names, "kind": schedule.kind, "clock": schedule.clock, "text": tell_entry(entry)}


def _export_group(row: GroupRow) -> Object:
    """Return one group: its model, pattern and parameters (null where a class names them), and what is different."""
    group = row.group
    names: Json = None if row.parameters is None else [*row.parameters]
    found: Object = {"model": row.model, "match": group.match, "parameters": names}
    found |= {"lr_scale": _export_change(group.lr_scale), "weight_decay": _export_change(group.weight_decay)}
    return {**found, "frozen": group.frozen, "frozen_until": row.until}


def _export_change(number: float | ScheduleDecl | None) -> Json:
    """Return a number of a group; a schedule in words."""
    return tell_change(number) if isinstance(number, ScheduleDecl) else number


def _export_function(function: Function) -> Object:
    """Return one function."""
    told: Object = {"datasets": [each or None for each in function.datasets]} if function.datasets else {}
    return {
        "name": function.name,
        "active": list(function.active),
        **told,
        "instructions": [export_instruction(instruction) for instruction in function.instructions],
    }


def export_instruction(instruction: Instruction) -> Object:
    """Return one instruction: kind, op, accesses, and what its kind adds."""
    common: Object = {"kind": kind_of(instruction), "op": instruction.op}
    if instruction.reads:
        common["reads"] = [str(at) for at in instruction.reads]
    if instruction.writes:
        common["writes"] = [str(at) for at in instruction.writes]
    if instruction.commits:
        common["commits"] = _export_commit(instruction.commits)
    return {**common, **_export_details(instruction)}


def _export_commit(commits: Commit) -> list[Json]:
    """Return the verdicts under which a write takes place: any of these lists, all of its names."""
    return [[*way] for way in commits]


def _export_details(instruction: Instruction) -> Object:
    """Return the fields that only this kind of instruction has."""
    match instruction:
        case Forward():
            return _export_forward(instruction)
        case Evaluate():
            return _export_evaluate(instruction)
        case Random():
            return {"distribution": instruction.distribution, "outputs": [instruction.output]}
        case Schedule():
            return {"outputs": [instruction.output]}
        case Gradient():
            return _export_gradient(instruction)
        case Transform():
            function, penalties = instruction.function.name, [tell_penalty(each) for each in instruction.penalties]
            used: Object = {"function": function, "inputs": list(instruction.inputs), "penalties": [*penalties]}
            return {**used, "outputs": [instruction.output]}
        case Gather() | Collect() | Drop():
            return _export_window(instruction)
        case Judge() | Settle():
            return _export_verdict(instruction)
        case Apply():
            return _export_apply(instruction)
        case Blend():
            followed: Object = {"source": instruction.source, "target": instruction.target}
            decay = instruction.decay.name if isinstance(instruction.decay, Scheduled) else instruction.decay
            return {**followed, "decay": decay, "buffers": instruction.buffers}
        case Assign():
            return {"source": instruction.source, "target": instruction.target}
        case Store():
            value = instruction.value
            return {"state": instruction.state, "inputs": [value.value if isinstance(value, Constant) else value.name]}
        case Release() | Emit():
            return {"values": list(instruction.values)}
        case _:
            assert_never(instruction)


def _export_window(instruction: Gather | Collect | Drop) -> Object:
    """Return the fields of what is added to a window, or taken out of it."""
    if isinstance(instruction, Drop):
        return {"window": instruction.window}
    if isinstance(instruction, Collect):
        filled = [instruction.filled] if instruction.filled else []
        return {"window": instruction.window, "outputs": [instruction.output, *filled]}
    added: Object = {"window": instruction.window, "inputs": list(filter(None, [instruction.gradients]))}
    return {**added, "reduce": instruction.reduce, "count": instruction.count, "guard": instruction.guard}


def _export_verdict(instruction: Judge | Settle) -> Object:
    """Return the fields of a verdict, or of the end of a step with some."""
    if isinstance(instruction, Judge):
        return {"inputs": list(instruction.gradients), "outputs": [instruction.output]}
    held: list[Json] = [{"op": op, "commits": _export_commit(commit)} for op, commit in instruction.held]
    ended: Object = {"inputs": list(instruction.verdicts), "held": held, "scaled": instruction.scaled}
    return {**ended, "fatal": [op for op, _ in instruction.fatal]}


def _export_forward(instruction: Forward) -> Object:
    """Return the fields of a forward."""
    return {
        "model": instruction.model,
        "inputs": _inputs(instruction),
        "outputs": [*instruction.outputs, *(value for value, _ in instruction.taps)],
        "train": instruction.train,
        "graph": instruction.graph,
        "frozen": instruction.frozen,
        "snapshot": instruction.snapshot,
        "compute": instruction.compute,
        "detached": _detached(instruction),
    }


def _export_evaluate(instruction: Evaluate) -> Object:
    """Return the fields of a pure op."""
    return {
        "function": instruction.function.name,
        "inputs": _inputs(instruction),
        "outputs": list(instruction.outputs),
        "graph": instruction.graph,
        "detached": _detached(instruction),
    }


def _export_apply(instruction: Apply) -> Object:
    """Return the fields of an optimizer's write."""
    optimizers: list[Json] = [part.optimizer for part in instruction.parts]
    inputs = dict.fromkeys(part.gradients for part in instruction.parts)
    constraints: list[Json] = [tell_projection(each) for each in instruction.projections]
    return {"optimizers": optimizers, "inputs": list(inputs), "constraints": constraints}


def _export_gradient(instruction: Gradient) -> Object:
    """Return the fields of a gradient."""
    outputs = ((instruction.output,) if instruction.output else ()) + instruction.value_outputs
    return {
        "loss": instruction.loss,
        "targets": [*instruction.models, *instruction.values],
        "outputs": list(outputs),
        "retain_graph": instruction.retain_graph,
        "create_graph": instruction.create_graph,
        "scaled": instruction.scaled,
        "frozen": [tell_resting(each) for each in instruction.resting],
    }


def _inputs(instruction: Instruction) -> list[Json]:
    """Return the inputs of a call: value names, and literals as numbers."""
    return [_operand(argument) for argument in arguments_of(instruction)]


def _operand(argument: Argument) -> Json:
    """Return one input."""
    operand = argument.operand
    return operand.value if isinstance(operand, Constant) else operand.name


def _detached(instruction: Instruction) -> list[Json]:
    """Return the inputs through which no gradient flows back."""
    operands = (argument.operand for argument in arguments_of(instruction))
    return [operand.name for operand in operands if isinstance(operand, Ref) and operand.detach]


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


def _export_warning(plan: Plan, problem: Diagnostic) -> Object:
    """Return one warning."""
    op, place = _op_at(plan, problem), place_in(problem.span)
    return {"code": problem.code, "op": op, "text": problem.message, "place": place}


def _op_at(plan: Plan, problem: Diagnostic) -> str:
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
