"""Construction of optimizers: the library's classes, or the framework's and the user's behind the same calling form."""

from __future__ import annotations

import ast

from compiler.ir.program import OptimizerDecl
from compiler.ir.value import HyperParameter, ScheduleDecl, find_decls
from runtime.emission import syntax
from runtime.emission.dialect import Dialect, Draft
from runtime.emission.scheduling import follow
from runtime.emission.terms import grouped_parameters


def construct_optimizer(optimizer: OptimizerDecl, draft: Draft) -> ast.expr:
    """Return the construction of an optimizer over the parameters of its models."""
    models, names, dialect = optimizer.models, draft.names, draft.dialect
    listed = names.parameters(models[0]) if len(models) == 1 else names.joint(models)
    parameters = syntax.name(names.own(optimizer.name) if optimizer.beside else listed)
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
    """Return an option: a literal, a schedule, or what makes one of several: ``each_of(linear(...), 0.999)``."""
    if isinstance(value, ScheduleDecl):
        return follow(value, dialect)
    if isinstance(value, tuple):
        items = [_option(each, dialect) for each in value]
        return syntax.call("each_of", *items) if find_decls(value) else syntax.sequence(items)
    return syntax.literal(value)
