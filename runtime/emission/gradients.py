"""What frameworks share of gradients: how a set and the gradients of values are received."""

from __future__ import annotations

import ast

from compiler.instructions import Gradient
from runtime.emission import syntax
from runtime.emission.scope import Scope, parameter_list


def find_targets(instruction: Gradient, scope: Scope) -> ast.expr:
    """Return what is differentiated by: a list made at build, or one made here where values are among the targets."""
    values = [syntax.name(scope.names.value(value)) for value in instruction.values]
    if not instruction.models:
        return values[0] if len(values) == 1 else syntax.sequence(values)
    models = syntax.name(parameter_list(instruction.models, scope))
    return syntax.listing([syntax.spread(models), *values]) if values else models


def receive(instruction: Gradient, gradients: ast.expr, scope: Scope) -> ast.stmt:
    """Return the assignment of the gradient set and of the gradients of values."""
    values = [scope.names.value(value) for value in instruction.value_outputs]
    if instruction.output is None:
        return _unpack(values, gradients)
    output = scope.names.value(instruction.output)
    if not values:
        return syntax.assign(output, gradients)
    rest = ast.Starred(value=ast.Name(id=output, ctx=ast.Store()), ctx=ast.Store())
    targets: list[ast.expr] = [rest, *(ast.Name(id=value, ctx=ast.Store()) for value in values)]
    return ast.Assign(targets=[ast.Tuple(elts=targets, ctx=ast.Store())], value=gradients)


def _unpack(values: list[str], gradients: ast.expr) -> ast.stmt:
    """Return ``a, b = gradients``; a single one is taken out by index."""
    if len(values) == 1:
        return syntax.assign(values[0], syntax.item(gradients, syntax.constant(0)))
    return syntax.assign(values, gradients)
