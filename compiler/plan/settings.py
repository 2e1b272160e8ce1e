"""The settings of a plan: optimizers with their numbers, and the groups of parameters that they step differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct

from compiler.facts.parameters import find_known_names, find_matching
from compiler.ir.program import Gate, GroupDecl, OptimizerDecl, group_of
from compiler.ir.value import HyperParameter, Json, Object, ScheduleDecl
from compiler.passes.freeze import find_freeze_gate, find_freezes
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.timetable import UNCOUNTED, find_applied, format_end, format_schedule
from graphspec.declare.durations import Duration
from graphspec.declare.optimizers import OPTIMIZERS, OptimizerName


def format_optimizer(optimizer: OptimizerDecl) -> str:
    """Return an optimizer with its numbers: `actor: adam, lr 0.0003, betas (0.9, 0.999), eps 1e-08`.

    Left out are zeros, false, and words that are the default.
    """
    models = "" if optimizer.models == (optimizer.name,) else f" ({', '.join(optimizer.models)})"
    table = OPTIMIZERS[cast("OptimizerName", optimizer.rule)] if optimizer.builtin else ()
    usual = {option.name: option.default for option in table if isinstance(option.default, str)}
    given = {name: value for name, value in optimizer.options.items() if value and value != usual.get(name)}
    shown = (f"{name} {_format_option(value)}" for name, value in given.items())
    return f"{optimizer.name}{models}: {', '.join((optimizer.rule, *shown))}"


def export_optimizer(optimizer: OptimizerDecl) -> Object:
    """Return an optimizer with every option."""
    options: Object = {name: _export_option(value) for name, value in optimizer.options.items()}
    return {"name": optimizer.name, "rule": optimizer.rule, "models": [*optimizer.models], "options": options}


def _format_option(value: HyperParameter) -> str:
    """Return an option in words."""
    match value:
        case ScheduleDecl():
            return "as scheduled below"
        case tuple():
            return f"({', '.join(map(_format_option, value))})"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value).lower() if isinstance(value, bool) else str(value)


def _export_option(value: HyperParameter) -> Json:
    """Return an option as JSON, a schedule in words."""
    match value:
        case ScheduleDecl():
            return format_schedule(value)
        case tuple():
            return [_export_option(each) for each in value]
        case Mapping():
            return {name: _export_option(each) for name, each in value.items()}
        case _:
            return value


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group of a model that a mode updates; ``parameters`` is None where only the built step knows their names."""

    model: str
    group: GroupDecl
    parameters: tuple[str, ...] | None
    gate: Gate | None = None
    """Open as long as it is frozen; None where it is frozen for ever, never, or cannot be counted yet."""
    uncounted: Duration | None = None
    """Until when it is frozen, where that cannot be counted yet."""


def find_groups(plan: CompiledStep, mode: str) -> Iterator[GroupRow]:
    """Yield the groups of the models that a mode updates."""
    program = plan.program
    freezes = find_freezes(plan.spec) if mode == "train" else ()
    uncounted = {each.gate: each.until for each in freezes if find_freeze_gate(plan.spec, each, plan.pace) is None}
    gates = {gate.op: gate for gate in program.mode(mode).gates}
    known = find_known_names(program.models)
    groups = [group for each in find_applied(program, mode) for group in each.groups]
    order = {model.name: place for place, model in enumerate(program.models)}
    seen: list[GroupDecl] = []
    for group in sorted(groups, key=lambda each: (order[each.model], each.index)):
        if group not in seen:
            seen.append(group)
            names = find_matching(group.match, known[group.model]) if group.model in known else None
            name = group_of(group.model, group.index)
            gate, until = gates.get(name), uncounted.get(name)
            yield GroupRow(model=group.model, group=group, parameters=names, gate=gate, uncounted=until)


def format_group(row: GroupRow) -> str:
    """Return a group in words: `net: 0.bias, 2.bias: weight_decay 0 (match: bias$)`."""
    group = row.group
    changes = {
        "frozen": group.frozen,
        f"frozen {row.gate and format_end(row.gate)}": row.gate is not None,
        f"frozen until {row.uncounted} {UNCOUNTED}": row.uncounted is not None,
        f"lr times {format_change(group.lr_scale)}": group.lr_scale != 1.0,
        f"weight_decay {format_change(group.weight_decay or 0)}": group.weight_decay is not None,
        f"stepped by {group.optimizer}": bool(group.optimizer),
    }
    text = ", ".join(change for change, is_made in changes.items() if is_made) or "as the others"
    names = "what the class calls so" if row.parameters is None else ", ".join(row.parameters)
    return f"{row.model}: {names}: {text} (match: {group.match})"


def format_change(number: float | ScheduleDecl) -> str:
    """Return what is different in words: a number, or `linear from 1 to 0.1 over 100 updates`."""
    return format_schedule(number) if isinstance(number, ScheduleDecl) else f"{number:g}"
