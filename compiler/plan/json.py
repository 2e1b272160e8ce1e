"""The plan as JSON: the published format (schemas/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.ir.diagnose import place_in
from compiler.ir.instructions import Instruction, RestoreAccumulator, Transform
from compiler.ir.instructions.base import export_commit
from compiler.ir.step_graph import Edge
from compiler.ir.value import Json, Object, ScheduleDecl
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.messages import export_messages
from compiler.plan.reachable_functions import describe_steps, find_first_dispatches
from compiler.plan.settings import export_optimizer, find_groups, format_change
from compiler.plan.summary import find_moments
from compiler.plan.timetable import find_applied, find_schedules, format_entry
from compiler.plan.waits import find_waits


def export_plan(plan: CompiledStep, mode: str, processes: int = 1) -> Object:
    """Return the plan of a mode as an object of the published format; for several processes with their messages."""
    program = plan.program
    decisions: dict[str, Object] = {}
    for graph in plan.graphs_of(mode).values():
        for each in graph.decisions:
            because: list[Json] = [
                {"edge": why.edge, "op": why.op, "cell": why.cell, "through": [*why.through], "place": why.place}
                for why in each.because
            ]
            decision: Object = {"code": each.code, "subject": each.subject, "text": each.text, "because": because}
            decisions.setdefault(f"{each.code} {each.text}", decision)
    groups: list[Json] = []
    for row in find_groups(plan, mode):
        # The parameters are null where a class names them.
        names: Json = None if row.parameters is None else [*row.parameters]
        found: Object = {"model": row.model, "match": row.group.match, "parameters": names}
        for name, number in (("lr_scale", row.group.lr_scale), ("weight_decay", row.group.weight_decay)):
            found[name] = format_change(number) if isinstance(number, ScheduleDecl) else number
        update = None if row.gate is None else row.gate.last
        until = row.gate.until if row.gate is not None else None if row.uncounted is None else str(row.uncounted)
        found["optimizer"] = row.group.optimizer or None
        groups.append({**found, "frozen": row.group.frozen, "frozen_until": until, "frozen_until_update": update})
    schedules: list[Json] = []
    for entry in find_schedules(program, mode):
        owner: Object = {entry.owner: entry.name, **({"option": entry.option} if entry.option else {})}
        written, counted = entry.schedule.uncounted, entry.schedule
        kind, clock = (counted.kind, counted.clock) if written is None else (written.schedule, written.clock)
        schedules.append({**owner, "kind": kind, "clock": clock, "text": format_entry(entry)})
    keys = {name: plan.spec.span("ops", name, key=True) for name in plan.spec.ops}
    warnings: list[Json] = []
    for problem in (*plan.warnings, *plan.pending):
        # A warning is about the last op that is declared at or before its place.
        line, column = (0, 0) if problem.span is None else (problem.span.line, problem.span.column)
        before = [(key.line, key.column, name) for name, key in keys.items() if key is not None]
        ops = [each for each in before if each[:2] <= (line, column)]
        op = max(ops)[2] if ops else ""
        place = place_in(problem.span)
        warnings.append({"code": problem.code, "op": op, "text": problem.message, "place": place})
    return {
        "plan": 3,
        "name": program.name,
        "backend": program.backend,
        "mode": mode,
        "order": program.order,
        "functions": [*_export_functions(plan, mode, processes)],
        "first_steps": [[*names] for names in find_first_dispatches(program.mode(mode), program)],
        "clocks": {**find_moments(plan, program.mode(mode))},
        "optimizers": [export_optimizer(each) for each in find_applied(program, mode)],
        "groups": groups,
        "schedules": schedules,
        "decisions": [*decisions.values()],
        "warnings": warnings,
    }


def _export_functions(plan: CompiledStep, mode: str, processes: int) -> Iterator[Object]:
    """Yield the functions of a mode: when they run, and their instructions."""
    program = plan.program.mode(mode)
    steps = describe_steps(program, plan.program)
    for function in program.functions:
        head: Object = {"name": function.name, "active": [*function.active]}
        if function.name in steps:
            head["steps"] = steps[function.name]
        if function.datasets:
            head["datasets"] = [each or None for each in function.datasets]
        waits = find_waits(plan.graphs[function.name])
        listed: list[Json] = [export_instruction(each, waits.get(each.id, ())) for each in function.instructions]
        sent: Object = {"messages": export_messages(plan, function, processes)} if processes > 1 else {}
        yield {**head, "instructions": listed, **sent}


def export_instruction(instruction: Instruction, waits: Iterable[Edge]) -> Object:
    """Return one instruction: kind, op, accesses, what it waits for, and what its kind adds."""
    common: Object = {"kind": instruction.kind(), "op": instruction.op}
    if instruction.id:
        common["id"] = instruction.id
    if instruction.reads:
        common["reads"] = [str(at) for at in instruction.reads]
    if instruction.writes:
        common["writes"] = [str(at) for at in instruction.writes]
    if instruction.commits:
        common["commits"] = export_commit(instruction.commits)
    if instruction.message:
        common["message"] = instruction.message
    waiting: list[Json] = [{"edge": each.hazard.value, "for": each.before, "text": each.why} for each in waits]
    if waiting:
        common["waits"] = waiting
    if isinstance(instruction, Transform | RestoreAccumulator) and instruction.unless:
        common["unless"] = export_commit(instruction.unless)
    return {**common, **instruction.export()}
