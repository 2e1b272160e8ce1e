"""Construction of optimizers: the library's classes, or the framework's and the user's with the same interface."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Apply, Resting, Transform
from compiler.ir.program import ModelDecl, OptimizerDecl
from compiler.ir.value import HyperParameter, Scheduled, ScheduleDecl, find_decls
from compiler.ir.weight_terms import Penalty
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, Draft, Global, Scope
from runtime.codegen.resources import Names, chosen_list, find_chosen, find_functions, find_penalized, find_resting
from runtime.codegen.schedules import follow
from runtime.codegen.scope import number


def _resting_global(models: tuple[str, ...], resting: Resting, draft: Draft) -> Global:
    """Return ``net_resting = places(among(net_params, matching(...)), net_params)``."""
    names = draft.names
    whole = syntax.name(names.parameters(models[0]) if len(models) == 1 else names.joint(models))
    found = [_match(draft.program.model(model), (match,), draft) for model, match in resting]
    listed = found[0] if len(found) == 1 else syntax.listing(map(syntax.spread, found))
    value = syntax.call("places", syntax.call("among", whole, listed), whole)
    return Global(name=names.resting(models, resting), value=value, comment="frozen for now")


def pattern_globals(draft: Draft) -> Iterator[Global]:
    """Yield the lists that constraints choose, then the penalties."""
    program, names = draft.program, draft.names
    yield from (_resting_global(models, resting, draft) for models, resting in find_resting(program))
    for chosen in find_chosen(program):
        found = _match(program.model(chosen.model), (chosen.match,), draft)
        stepped = syntax.name(names.parameters(chosen.model))
        yield Global(name=names.chosen(chosen.key), value=syntax.call("among", stepped, found))
    for each in find_penalized(program):
        listed = syntax.listing(_penalty(penalty, each, names) for penalty in each.penalties)
        yield Global(name=names.penalties(each.output), value=listed, place=(each.op, each.place))


def _penalty(penalty: Penalty, instruction: Transform, names: Names) -> ast.expr:
    """Return ``Penalty(net_params, places(net_params, net_params), l2=0.5)``."""
    models = instruction.models
    whole = names.parameters(models[0]) if len(models) == 1 else names.joint(models)
    part = chosen_list(penalty.model, penalty.match, names)
    options = {name: _factor(each, names) for name, each in (("l1", penalty.l1), ("l2", penalty.l2)) if each}
    if penalty.function is not None:
        options["term"] = syntax.dotted(names.imported(penalty.function))
    return syntax.call("Penalty", part, syntax.call("places", part, syntax.name(whole)), **options)


def _factor(value: float | Scheduled, names: Names) -> ast.expr:
    """Return a number; for one that follows a schedule, its reader: ``lambda: fit_net_l2(net_adam.applied)``."""
    if not isinstance(value, Scheduled):
        return syntax.constant(value)
    return syntax.name(names.scheduled(value.name)) if value.optimizer is None else syntax.later(number(value, names))


def frozen_global(model: ModelDecl, names: Names, dialect: Dialect) -> Global:
    """Return ``net_frozen = matching(net.named_parameters(), "^0")``."""
    variable = syntax.name(names.model(model.name))
    patterns = (syntax.constant(each) for each in model.frozen)
    value = syntax.call("matching", dialect.named(model, variable), *patterns)
    return Global(name=names.frozen(model.name), value=value, comment="never stepped")


def grouped_parameters(optimizer: OptimizerDecl, draft: Draft) -> ast.expr | None:
    """Return the groups of an optimizer with their options; None where it has none.

    Groups with the same options are merged.
    """
    unlike = optimizer.find_unlike()
    return syntax.listing(_group(changes, optimizer, draft) for changes in unlike) if unlike else None


def has_groups(optimizer: OptimizerDecl) -> bool:
    """Return whether an optimizer has other options for some parameters than for the rest."""
    return bool(optimizer.find_changed())


def _group(changes: Mapping[str, float | ScheduleDecl], optimizer: OptimizerDecl, draft: Draft) -> ast.expr:
    """Return ``(matching(net.named_parameters(), "bias$"), {"weight_decay": 0.0})``."""
    patterns: dict[str, list[str]] = {}
    for group in optimizer.find_changed():
        if group.changes == changes:
            patterns.setdefault(group.model, []).append(group.match)
    members = [_match(draft.program.model(model), tuple(found), draft) for model, found in patterns.items()]
    listed = members[0] if len(members) == 1 else syntax.listing(map(syntax.spread, members))
    options = {
        name: follow(each, draft.dialect) if isinstance(each, ScheduleDecl) else syntax.constant(each)
        for name, each in changes.items()
    }
    return syntax.sequence((listed, syntax.dictionary(options)))


def _match(model: ModelDecl, patterns: tuple[str, ...], draft: Draft) -> ast.expr:
    """Return ``matching(net.named_parameters(), "bias$")``."""
    named = draft.dialect.named(model, syntax.name(draft.names.model(model.name)))
    return syntax.call("matching", named, *map(syntax.constant, patterns))


def construct_optimizer(optimizer: OptimizerDecl, draft: Draft) -> ast.expr:
    """Return the construction of an optimizer over the parameters of its models."""
    models, names, dialect = optimizer.models, draft.names, draft.dialect
    listed = names.parameters(models[0]) if len(models) == 1 else names.joint(models)
    parameters = syntax.name(names.own(optimizer.name) if optimizer.excluded else listed)
    known = {key: each for key, each in optimizer.options.items() if key not in dialect.unknown_options(optimizer)}
    options = {name: _option(value, dialect) for name, value in known.items()}
    groups = grouped_parameters(optimizer, draft)
    if optimizer.builtin and optimizer.rule in dialect.direct:
        direct = dialect.direct[optimizer.rule]
        if groups is not None:
            return syntax.call("Grouped", syntax.name(direct), parameters, groups, **options)
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


def sharing_globals(draft: Draft) -> Iterator[Global]:
    """Yield the parameters of optimizers that leave some to others, their places in sets, and what two sets share."""
    names, program = draft.names, draft.program
    for optimizer in program.optimizers:
        if optimizer.excluded:
            own = (syntax.name(_listed(models, names)) for models in (optimizer.models, optimizer.excluded))
            comment = "the rest is stepped by another"
            yield Global(name=names.own(optimizer.name), value=syntax.call("without", *own), comment=comment)
    instructions = [each for function in find_functions(program) for each in function.instructions]
    parts = (part for each in instructions if isinstance(each, Apply) for part in each.parts if part.excluded)
    for covers, optimizer in dict.fromkeys((part.covers, part.optimizer) for part in parts):
        found = syntax.call("places", syntax.name(names.own(optimizer)), syntax.name(_listed(covers, names)))
        yield Global(name=names.own_places(optimizer), value=found)
    shared = (each.spans for each in instructions if isinstance(each, Transform) and each.spans)
    for models, others in dict.fromkeys((spans[0], other) for spans in shared for other in spans[1:]):
        lists = (syntax.name(_listed(each, names)) for each in (models, others))
        yield Global(name=names.common(models, others), value=syntax.call("common_places", *lists))


def _listed(models: tuple[str, ...], names: Names) -> str:
    """Return the list of the parameters of one or several models."""
    return names.parameters(models[0]) if len(models) == 1 else names.joint(models)


def add_shared(instruction: Transform, scope: Scope) -> ast.expr:
    """Return ``add_shared(step_a, (step_b, step_a_common))``; only the set where no other update fires."""
    first, *others = (syntax.name(scope.names.value(each)) for each in instruction.inputs)
    if not others:
        return first
    models, *spans = instruction.spans
    places = [syntax.name(scope.names.common(models, each)) for each in spans]
    return syntax.call("add_shared", first, *(map(syntax.sequence, zip(others, places, strict=True))))
