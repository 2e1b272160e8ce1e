"""The common part of lowering gradients: how a set and the gradients of values are assigned."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from compiler.ir.instructions import Gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import Scope
from runtime.codegen.scope import line_of, parameter_list
from runtime.codegen.text import Block, Code, Line

AGAIN = "forwards run again, in whole or in part, whose statistics are written already"


def find_targets(instruction: Gradient, scope: Scope) -> ast.expr:
    """Return the targets of a gradient: a list made at build, or one made here where values are among them."""
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
    return syntax.unpack(output, values, gradients)


def recomputing(instruction: Gradient, line: Line, models: Iterable[str], scope: Scope) -> tuple[Code, ...]:
    """Return the line of a gradient, in a block that keeps the buffers of models whose forwards run again in it."""
    kept = [syntax.name(scope.names.model(model)) for model in dict.fromkeys(models)]
    if not kept:
        return (line,)
    context = syntax.call("kept_buffers", *kept)
    return (Block(header=line_of(instruction, syntax.within(context), comment=AGAIN), body=(line,)),)


def _unpack(values: list[str], gradients: ast.expr) -> ast.stmt:
    """Return ``a, b = gradients``; a single one is taken out by index."""
    if len(values) == 1:
        return syntax.assign(values[0], syntax.item(gradients, syntax.constant(0)))
    return syntax.assign(values, gradients)
