"""Construction of optimizers: the library's classes, or torch's and the user's behind the same calling form."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from compiler.program import OptimizerDecl, Plain, ScheduleDecl
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.emission.names import Names

DIRECT: Mapping[str, str] = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "lion": "Lion"}
"""Rules with a class of the library, which steps whole lists with explicit gradients."""
WRAPPED: Mapping[str, str] = {
    "rmsprop": "torch.optim.RMSprop",
    "adadelta": "torch.optim.Adadelta",
    "adamax": "torch.optim.Adamax",
    "nadam": "torch.optim.NAdam",
}
"""Rules for which torch's class is used as it is."""
SCHEDULES: Mapping[str, str] = {"step": "step_decay", "join": "joined"}
"""Schedules whose maker has another name in the library."""
FIELDS: Mapping[str, str] = {"from": "start"}
"""Fields of schedules that are keywords of Python."""
PACES: Mapping[str, str] = {"samples": "times", "epochs": "every"}
"""By clock, what `paced` calls its pace."""


def construct_optimizer(optimizer: OptimizerDecl, names: Names) -> ast.expr:
    """Return the construction of an optimizer over the parameters of its models."""
    models = optimizer.models
    parameters = syntax.name(names.parameters(models[0]) if len(models) == 1 else names.joint(models))
    options = {name: _option(value) for name, value in optimizer.options.items()}
    if optimizer.builtin and optimizer.rule in DIRECT:
        return syntax.call(DIRECT[optimizer.rule], parameters, **options)
    if optimizer.options.get("fused") == "auto":
        del options["fused"]
    rule = WRAPPED[optimizer.rule] if optimizer.builtin else names.imported(optimizer.rule)
    return syntax.call("Wrapped", parameters, syntax.dotted(rule), **options)


def _option(value: Plain | ScheduleDecl) -> ast.expr:
    """Return an option: a literal, or a schedule, which reads another clock than its optimizer's through `paced`."""
    if not isinstance(value, ScheduleDecl):
        return syntax.literal(value)
    if value.clock == "updates":
        return _curve(value)
    pace = {PACES[value.clock]: syntax.constant(value.pace)} if value.clock in PACES else {}
    return syntax.call("paced", syntax.name("clock"), _curve(value), **pace)


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
