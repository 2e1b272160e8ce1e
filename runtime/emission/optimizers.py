"""Construction of optimizers: the library's classes, or the framework's and the user's behind the same calling form."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from compiler.program import OptimizerDecl, Plain, ScheduleDecl
from runtime.emission import syntax
from runtime.emission.dialect import Dialect, Draft

SCHEDULES: Mapping[str, str] = {"step": "step_decay", "join": "joined"}
"""Schedules whose maker has another name in the library."""
FIELDS: Mapping[str, str] = {"from": "start"}
"""Fields of schedules that are keywords of Python."""
PACES: Mapping[str, str] = {"samples": "times", "epochs": "every"}
"""By clock, what `paced` calls its pace."""


def construct_optimizer(optimizer: OptimizerDecl, draft: Draft) -> ast.expr:
    """Return the construction of an optimizer over the parameters of its models."""
    models, names, dialect = optimizer.models, draft.names, draft.dialect
    parameters = syntax.name(names.parameters(models[0]) if len(models) == 1 else names.joint(models))
    known = {key: each for key, each in optimizer.options.items() if key not in dialect.unknown_options(optimizer)}
    options = {name: _option(value, dialect) for name, value in known.items()}
    if optimizer.builtin and optimizer.rule in dialect.direct:
        return syntax.call(dialect.direct[optimizer.rule], parameters, **options)
    rule = dialect.wrapped[optimizer.rule] if optimizer.builtin else names.imported(optimizer.rule)
    return syntax.call("Wrapped", parameters, syntax.dotted(rule), **options)


def _option(value: Plain | ScheduleDecl, dialect: Dialect) -> ast.expr:
    """Return an option: a literal, or a schedule, which reads another clock than its optimizer's through `paced`."""
    if not isinstance(value, ScheduleDecl):
        return syntax.literal(value)
    if value.clock == "updates":
        return _curve(value)
    pace = {PACES[value.clock]: syntax.constant(value.pace)} if value.clock in PACES else {}
    return syntax.call("paced", syntax.name(dialect.pace), _curve(value), **pace)


def _curve(schedule: ScheduleDecl) -> ast.expr:
    """Return a curve: a call of its maker."""
    fields = {FIELDS.get(name, name): syntax.constant(number) for name, number in schedule.fields.items()}
    if schedule.values:
        keys: list[ast.expr | None] = [syntax.constant(moment) for moment in (0, *schedule.moments)]
        fields["at"] = ast.Dict(keys=keys, values=[syntax.constant(value) for value in schedule.values])
    if schedule.parts:
        fields["parts"] = syntax.listing(_curve(part) for part in schedule.parts)
        fields["at"] = syntax.listing(syntax.constant(moment) for moment in schedule.moments)
    return syntax.call(SCHEDULES.get(schedule.kind, schedule.kind), **fields)
