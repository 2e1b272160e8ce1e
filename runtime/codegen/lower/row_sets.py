"""Gradient sets with rows: the calls that take them, where tables have rows for gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from compiler.facts.parameters import find_tables
from compiler.ir.instructions import ApplyPart
from compiler.ir.program import Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope


def over_rows(path: str, sets: Iterable[ast.expr], *rest: ast.expr, **said: ast.expr) -> ast.expr:
    """Return ``over_rows(clip_norm, (step_,), 1.0)``: a function of sets, of tables by the rows that they have."""
    return syntax.call("over_rows", syntax.dotted(path), syntax.sequence(sets), *rest, **said)


def read_values(gradients: ast.expr) -> ast.expr:
    """Return ``values_of(step_)``: a set as plain tensors, for what reads its numbers alone."""
    return syntax.call("values_of", gradients)


def step_rows(part: ApplyPart, share: ast.expr, scope: EmitScope) -> ast.expr:
    """Return ``apply_rows(net_adam, step_)``, or ``net_adam.apply(whole_tables(step_, net_params))``."""
    declared = next(each for each in scope.program.optimizers if each.name == part.optimizer)
    optimizer = syntax.name(scope.names.optimizer(part.optimizer))
    if declared.steps_rows:
        return syntax.call("apply_rows", optimizer, share)
    own = part.excluded or part.is_divided
    parameters = scope.names.own(part.optimizer) if own else scope.names.joint(part.models)
    return syntax.method(optimizer, "apply", syntax.call("whole_tables", share, syntax.name(parameters)))


def list_tables(models: Sequence[str], context: EmitContext) -> ast.expr:
    """Return the list of the tables of models: ``matching(net.named_parameters(), "^0[.]weight$")``."""
    found: list[ast.expr] = []
    for model in (context.program.model(each) for each in models):
        patterns = [f"^{each.name.replace('.', '[.]')}$" for each in model.parameters if each.sparse]
        named = context.dialect.named(model, syntax.name(context.names.model(model.name)))
        found += [syntax.call("matching", named, *map(syntax.constant, patterns))] if patterns else []
    return found[0] if len(found) == 1 else syntax.listing(map(syntax.spread, found))


def has_rows(part: ApplyPart, program: Program) -> bool:
    """Return whether a part of an update steps tables that have rows for gradients."""
    declared = next(each for each in program.optimizers if each.name == part.optimizer)
    return bool(find_tables(program.models, declared))
