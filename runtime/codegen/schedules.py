"""Emission of schedules: how each is made, once, and which numbers of ops there are that follow one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from compiler.ir.instructions import Apply, Blend, Instruction, Random, Schedule, Transform
from compiler.ir.program import Program
from compiler.ir.value import Scheduled, ScheduleDecl
from compiler.timing.curves import find_scheduled
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, Draft, Global
from runtime.codegen.resources import find_functions

MAKERS: Mapping[str, str] = {"step": "step_decay", "join": "joined"}
"""Schedules whose maker has another name in the library."""
FIELDS: Mapping[str, str] = {"from": "start"}
"""Fields of schedules that are keywords of Python."""
PACES: Mapping[str, str] = {"samples": "times", "epochs": "every"}
"""By clock, what `paced` and `timed` call its pace."""
Form: TypeAlias = Literal["value", "operand", "option"]
"""What a number is read as: a value of the step, a number among values, or an option in double precision."""


def follow(schedule: ScheduleDecl, dialect: Dialect) -> ast.expr:
    """Return a schedule as a function of the updates applied, which reads another clock through `paced`."""
    if schedule.clock == "updates":
        return _curve(schedule)
    return syntax.call("paced", syntax.name(dialect.pace), _curve(schedule), **_pace(schedule))


def scheduled_globals(draft: Draft) -> Iterator[Global]:
    """Yield one function per number of an op: of nothing, or of the updates that an optimizer has applied."""
    for number, form, instruction in find_numbers(draft.program):
        place = (instruction.op, instruction.place)
        yield Global(name=draft.names.scheduled(number.name), value=_read(number, form, draft.dialect), place=place)


def find_numbers(program: Program) -> Iterator[tuple[Scheduled, Form, Instruction]]:
    """Yield every number of a program's ops that changes, what it is read as, and an instruction that reads it."""
    seen: set[str] = set()
    for function in find_functions(program):
        for instruction in function.instructions:
            for number in find_scheduled(instruction):
                if number.name not in seen:
                    seen.add(number.name)
                    yield number, _find_form(instruction), instruction


def _find_form(instruction: Instruction) -> Form:
    """Return what the numbers of an instruction are read as."""
    match instruction:
        case Schedule():
            return "value"
        case Apply() | Blend() | Random():
            return "option"
        case Transform():
            return "option" if instruction.function.builtin else "operand"
        case _:
            return "operand"


def _read(number: Scheduled, form: Form, dialect: Dialect) -> ast.expr:
    """Return the function that reads a number."""
    if number.optimizer is not None:
        return _curve(number.schedule)
    schedule = number.schedule
    timed = syntax.call("timed", syntax.name(dialect.pace), _curve(schedule), **_pace(schedule))
    return dialect.scheduled(timed, form)


def _pace(schedule: ScheduleDecl) -> dict[str, ast.expr]:
    """Return what the clock of a schedule makes of a step."""
    return {PACES[schedule.clock]: syntax.constant(schedule.pace)} if schedule.clock in PACES else {}


def _curve(schedule: ScheduleDecl) -> ast.expr:
    """Return a curve: a call of its maker."""
    fields = {FIELDS.get(name, name): syntax.constant(number) for name, number in schedule.fields.items()}
    if schedule.values:
        keys: list[ast.expr | None] = [syntax.constant(moment) for moment in (0, *schedule.moments)]
        fields["at"] = ast.Dict(keys=keys, values=[syntax.constant(value) for value in schedule.values])
    if schedule.parts:
        fields["parts"] = syntax.listing(_curve(part) for part in schedule.parts)
        fields["at"] = syntax.listing(syntax.constant(moment) for moment in schedule.moments)
    return syntax.call(MAKERS.get(schedule.kind, schedule.kind), **fields)
