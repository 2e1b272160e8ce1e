"""Emission of what models say of some of their parameters: those that are frozen, groups, constraints, penalties."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Resting, Transform
from compiler.ir.program import ModelDecl, OptimizerDecl
from compiler.ir.value import Scheduled, ScheduleDecl
from compiler.ir.weight_terms import Penalty
from runtime.emission import syntax
from runtime.emission.dialect import Dialect, Draft, Global
from runtime.emission.names import Names
from runtime.emission.patterns import chosen_list, find_chosen, find_penalized, find_resting
from runtime.emission.scheduling import follow
from runtime.emission.scope import number


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
    """Return a number; for one that follows a schedule what reads it: ``lambda: fit_net_l2(net_adam.applied)``."""
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
    """Return the groups of an optimizer with what is different for them; None where it has none.

    Groups in which the same is different are one.
    """
    unlike = optimizer.find_unlike()
    return syntax.listing(_group(changes, optimizer, draft) for changes in unlike) if unlike else None


def has_groups(optimizer: OptimizerDecl) -> bool:
    """Return whether an optimizer steps some parameters in another way than the rest."""
    return bool(optimizer.find_changed())


def _group(changes: Mapping[str, float | ScheduleDecl], optimizer: OptimizerDecl, draft: Draft) -> ast.expr:
    """Return ``(matching(net.named_parameters(), "bias$"), {"weight_decay": 0.0})``."""
    patterns: dict[str, list[str]] = {}
    for group in optimizer.find_changed():
        if group.changes == changes:
            patterns.setdefault(group.model, []).append(group.match)
    members = [_match(draft.program.model(model), tuple(found), draft) for model, found in patterns.items()]
    listed = members[0] if len(members) == 1 else syntax.listing(map(syntax.spread, members))
    told = {
        name: follow(each, draft.dialect) if isinstance(each, ScheduleDecl) else syntax.constant(each)
        for name, each in changes.items()
    }
    return syntax.sequence((listed, syntax.dictionary(told)))


def _match(model: ModelDecl, patterns: tuple[str, ...], draft: Draft) -> ast.expr:
    """Return ``matching(net.named_parameters(), "bias$")``."""
    named = draft.dialect.named(model, syntax.name(draft.names.model(model.name)))
    return syntax.call("matching", named, *map(syntax.constant, patterns))
