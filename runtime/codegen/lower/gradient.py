"""The common part of lowering gradients: how a set and the gradients of values are assigned."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from compiler.ir.instructions import Gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope
from runtime.codegen.lower.overflow import SCALE
from runtime.codegen.scope import line_of, operand
from runtime.codegen.shards import whole
from runtime.codegen.text import Block, Code, Line

AGAIN = "forwards run again, in whole or in part, whose statistics are written already"


def find_targets(instruction: Gradient, scope: EmitScope) -> ast.expr:
    """Return the targets of a gradient: a list made at build, or one made here where values are among them."""
    values = [syntax.name(scope.names.value(value)) for value in instruction.values]
    if not instruction.models:
        return values[0] if len(values) == 1 else syntax.sequence(values)
    weights = instruction.weights
    if weights is None:
        models = syntax.name(scope.names.joint(instruction.models))
        models = whole(models) if scope.program.is_sharded else models
    else:
        models = syntax.name(scope.names.value(weights))
    return syntax.listing([syntax.spread(models), *values]) if values else models


def find_seeds(instruction: Gradient, scope: EmitScope) -> ast.expr | None:
    """Return the gradients of the loss that a gradient begins with; None where these are ones."""
    seeds = [operand(each, scope) for each in instruction.grad_outputs or ()]
    given = (seeds[0] if len(seeds) == 1 else syntax.sequence(seeds)) if seeds else None
    if not instruction.scaled:
        return given
    if given is not None:
        return syntax.call(f"{SCALE}.scaled", given)
    return syntax.call(f"{SCALE}.seed", syntax.name(scope.names.value(instruction.loss)))


def receive(instruction: Gradient, gradients: ast.expr, scope: EmitScope) -> ast.stmt:
    """Return the assignment of the gradient set and of the gradients of values."""
    values = [scope.names.value(value) for value in instruction.value_outputs]
    if instruction.output is None:
        is_single = len(values) == 1
        taken = syntax.item(gradients, syntax.constant(0)) if is_single else gradients
        return syntax.assign(values[0] if is_single else values, taken)
    output = scope.names.value(instruction.output)
    if not values:
        return syntax.assign(output, gradients)
    return syntax.unpack(output, values, gradients)


def recomputing(instruction: Gradient, line: Line, models: Iterable[str], scope: EmitScope) -> tuple[Code, ...]:
    """Return the line of a gradient, in a block that keeps the buffers of models whose forwards run again in it."""
    kept = [syntax.name(scope.names.model(model)) for model in dict.fromkeys(models)]
    if not kept:
        return (line,)
    context = syntax.call("kept_buffers", *kept)
    return (Block(header=line_of(instruction, syntax.within(context), comment=AGAIN), body=(line,)),)
