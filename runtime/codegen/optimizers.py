"""Construction of optimizers (the library's, the framework's and the user's), and of the schedules of numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Apply, Blend, Transform
from compiler.ir.program import ModelDecl, OptimizerDecl
from compiler.ir.value import HyperParameter, Scheduled, ScheduleDecl, find_decls
from compiler.ir.weight_terms import Penalty
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, EmitContext, EmitScope, Global
from runtime.codegen.resources import (
    Names,
    averaged_keys,
    chosen_list,
    find_chosen,
    find_frozen,
    find_instructions,
    find_penalized,
    find_selective,
)
from runtime.codegen.scheduled_numbers import find_numbers
from runtime.codegen.scope import number
from runtime.codegen.shards import named_parameters

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


def scheduled_globals(context: EmitContext) -> Iterator[Global]:
    """Yield one function per number of an op: of nothing, or of the updates that an optimizer has applied."""
    for each, form, instruction in find_numbers(context.program):
        if isinstance(instruction, Blend) and instruction.progress is not None:
            continue  # it counts, and is made when there are gates
        read = _curve(each.schedule)
        if each.optimizer is None:
            timed = syntax.call("timed", syntax.name(context.dialect.pace), read, **_pace(each.schedule))
            read = context.dialect.scheduled(timed, form)
        place = (instruction.op, instruction.place)
        yield Global(name=context.names.scheduled(each.name), value=read, place=place)


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


def pattern_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the lists that constraints choose, then the penalties."""
    program, names = context.program, context.names
    for models, frozen in find_frozen(program):
        whole = syntax.name(names.joint(models))
        found = [_match(program.model(model), (match,), context) for model, match in frozen]
        listed = found[0] if len(found) == 1 else syntax.listing(map(syntax.spread, found))
        places = syntax.call("places", syntax.call("among", whole, listed), whole)
        yield Global(name=names.frozen_places(models, frozen), value=places)
    for chosen in find_chosen(program):
        found = _match(program.model(chosen.model), (chosen.match,), context)
        stepped = syntax.name(names.parameters(chosen.model))
        yield Global(name=names.chosen(chosen.key), value=syntax.call("among", stepped, found))
    for blend in find_selective(program):
        # by names of the source; the target has its parameters in the same order
        model, has_own = program.model(blend.source), blend.source in context.needs.weights
        whole = syntax.name(names.weights(blend.source) if has_own else names.parameters(blend.source))
        chosen = whole if blend.match is None else syntax.call("among", whole, _match(model, (blend.match,), context))
        if blend.exclude is not None:
            chosen = syntax.call("without", chosen, _match(model, (blend.exclude,), context))
        averaged, copied = (names.chosen(key) for key in averaged_keys(blend))
        rest = syntax.call("without", whole, chosen)
        yield Global(name=averaged, value=syntax.call("places", chosen, whole), place=(blend.op, blend.place))
        yield Global(name=copied, value=syntax.call("places", rest, whole), place=(blend.op, blend.place))
    for each in find_penalized(program):
        listed = syntax.listing(_penalty(penalty, each, names) for penalty in each.penalties)
        yield Global(name=names.penalties(each.output), value=listed, place=(each.op, each.place))


def _penalty(penalty: Penalty, instruction: Transform, names: Names) -> ast.expr:
    """Return ``Penalty(net_params, places(net_params, net_params), l2=0.5)``."""
    models = instruction.models
    whole = names.joint(models)
    part = chosen_list(penalty.model, penalty.match, names)
    options: dict[str, ast.expr] = {}
    for name, value in (("l1", penalty.l1), ("l2", penalty.l2)):
        if isinstance(value, Scheduled):  # read anew in every step: ``lambda: fit_net_l2(net_adam.applied)``
            reader = syntax.name(names.scheduled(value.name))
            options[name] = reader if value.optimizer is None else syntax.later(number(value, names))
        elif value:
            options[name] = syntax.constant(value)
    if penalty.function is not None:
        options["term"] = syntax.dotted(names.imported(penalty.function))
    return syntax.call("Penalty", part, syntax.call("places", part, syntax.name(whole)), **options)


def frozen_global(model: ModelDecl, context: EmitContext) -> Global:
    """Return ``net_frozen = matching(net.named_parameters(), "^0")``."""
    value = _match(model, model.frozen, context)
    return Global(name=context.names.frozen(model.name), value=value, comment="never stepped")


def grouped_parameters(optimizer: OptimizerDecl, context: EmitContext) -> ast.expr | None:
    """Return the groups of an optimizer with their options; None where it has none.

    Groups with the same options are merged: ``[(matching(net.named_parameters(), "bias$"), {"weight_decay": 0.0})]``.
    """
    groups: list[ast.expr] = []
    for changes in optimizer.find_unlike():
        patterns: dict[str, list[str]] = {}
        for group in optimizer.find_changed():
            if group.changes == changes:
                patterns.setdefault(group.model, []).append(group.match)
        members = [_match(context.program.model(model), tuple(found), context) for model, found in patterns.items()]
        listed = members[0] if len(members) == 1 else syntax.listing(map(syntax.spread, members))
        options = {
            name: follow(each, context.dialect) if isinstance(each, ScheduleDecl) else syntax.constant(each)
            for name, each in changes.items()
        }
        groups.append(syntax.sequence((listed, syntax.dictionary(options))))
    return syntax.listing(groups) if groups else None


def has_groups(optimizer: OptimizerDecl) -> bool:
    """Return whether an optimizer has other options for some parameters than for the rest."""
    return bool(optimizer.find_changed())


def _match(model: ModelDecl, patterns: tuple[str, ...], context: EmitContext) -> ast.expr:
    """Return ``matching(net.named_parameters(), "bias$")``."""
    variable = syntax.name(context.names.model(model.name))
    is_sharded = context.program.is_sharded
    named = named_parameters(model, context.names) if is_sharded else context.dialect.named(model, variable)
    return syntax.call("matching", named, *map(syntax.constant, patterns))


def construct_optimizer(optimizer: OptimizerDecl, context: EmitContext) -> ast.expr:
    """Return the construction of an optimizer over the parameters of its models."""
    models, names, dialect = optimizer.models, context.names, context.dialect
    listed = names.joint(models)
    parameters = syntax.name(names.own(optimizer.name) if optimizer.is_partial else listed)
    left = (*dialect.unknown_options(optimizer), *(["sparse"] if optimizer.builtin else []))
    known = {key: each for key, each in optimizer.options.items() if key not in left}
    options = {name: _option(value, dialect) for name, value in known.items()}
    groups = grouped_parameters(optimizer, context)
    if optimizer.builtin and optimizer.rule in dialect.direct:
        direct = dialect.direct[optimizer.rule]
        if groups is not None:
            return syntax.call(dialect.grouped, syntax.name(direct), parameters, groups, **options)
        return syntax.call(direct, parameters, **options)
    rule = dialect.wrapped[optimizer.rule] if optimizer.builtin else names.imported(optimizer.rule)
    if groups is not None:
        return syntax.call("GroupedWrapped", parameters, syntax.dotted(rule), groups, **options)
    return syntax.call("Wrapped", parameters, syntax.dotted(rule), **options)


def _option(value: HyperParameter, dialect: Dialect) -> ast.expr:
    """Return an option: a literal, a schedule, or several of them: ``each_of(linear(...), 0.999)``."""
    if isinstance(value, ScheduleDecl):
        return follow(value, dialect)
    if isinstance(value, tuple):
        items = [_option(each, dialect) for each in value]
        return syntax.call("each_of", *items) if find_decls(value) else syntax.sequence(items)
    return syntax.literal(value)


def sharing_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the parameters of optimizers that leave some to others, their places in sets, and what two sets share."""
    names, program = context.names, context.program
    for optimizer in program.optimizers:
        if optimizer.is_partial:
            whole: ast.expr = syntax.name(names.joint(optimizer.models))
            if optimizer.excluded:
                whole = syntax.call("without", whole, syntax.name(names.joint(optimizer.excluded)))
            for maker, patterns in (("without", optimizer.left), ("among", optimizer.chosen)):
                found = [_match(program.model(model), (match,), context) for model, match in patterns]
                others = found[0] if len(found) == 1 else syntax.listing(map(syntax.spread, found))
                whole = syntax.call(maker, whole, others) if found else whole
            comment = "the rest is stepped by another"
            yield Global(name=names.own(optimizer.name), value=whole, comment=comment)
    instructions = [*find_instructions(program)]
    parts = (part for each in instructions if isinstance(each, Apply) for part in each.parts)
    taken = ((part.covers, part.optimizer) for part in parts if part.excluded or part.is_divided)
    for covers, optimizer in dict.fromkeys(taken):
        found = syntax.call("places", syntax.name(names.own(optimizer)), syntax.name(names.joint(covers)))
        yield Global(name=names.own_places(optimizer, covers), value=found)
    shared = (each.spans for each in instructions if isinstance(each, Transform) and each.spans)
    for models, others in dict.fromkeys((spans[0], other) for spans in shared for other in spans[1:]):
        lists = (syntax.name(names.joint(each)) for each in (models, others))
        yield Global(name=names.common(models, others), value=syntax.call("common_places", *lists))


def add_shared(instruction: Transform, scope: EmitScope) -> ast.expr:
    """Return ``add_shared(step_a, (step_b, step_a_common))``; only the set where no other update fires."""
    first, *others = (syntax.name(scope.names.value(each)) for each in instruction.inputs)
    if not others:
        return first
    models, *spans = instruction.spans
    places = [syntax.name(scope.names.common(models, each)) for each in spans]
    return syntax.call("add_shared", first, *(map(syntax.sequence, zip(others, places, strict=True))))
