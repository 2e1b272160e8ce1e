"""Emission of schedules: each is made once; and the numbers of ops that follow one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from compiler.ir.value import Scheduled, ScheduleDecl
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, Draft, Global
from runtime.codegen.scheduled_numbers import Form, find_numbers

MAKERS: Mapping[str, str] = {"step": "step_decay", "join": "joined"}
"""Schedules whose maker has another name in the library."""
FIELDS: Mapping[str, str] = {"from": "start"}
"""Fields of schedules that are keywords of Python."""
PACES: Mapping[str, str] = {"samples": "times", "epochs": "every"}
"""By clock, the name of its pace in `paced` and `timed`."""


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


def _read(number: Scheduled, form: Form, dialect: Dialect) -> ast.expr:
    """Return the function that reads a number."""
    if number.optimizer is not None:
        return _curve(number.schedule)
    schedule = number.schedule
    timed = syntax.call("timed", syntax.name(dialect.pace), _curve(schedule), **_pace(schedule))
    return dialect.scheduled(timed, form)


def _pace(schedule: ScheduleDecl) -> dict[str, ast.expr]:
    """Return the expression of a schedule's clock for a step."""
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
