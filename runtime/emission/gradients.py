"""What frameworks share of gradients: how a set and the gradients of values are received, and transforms of sets."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from compiler.program import Gradient, Transform
from runtime.emission import syntax
from runtime.emission.scope import Lowered, Scope, line_of, parameter_list, with_notes


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


def lower_transform(instruction: Transform, scope: Scope) -> Lowered:
    """Return a map of gradient sets to one: ``step = clip_norm(step_raw, 1.0)``."""
    sets = [syntax.name(scope.names.value(value)) for value in instruction.inputs]
    target = scope.names.value(instruction.output)
    line = line_of(instruction, syntax.assign(target, _transform(instruction, sets, scope)))
    return Lowered(code=with_notes(instruction, [line]))


def _transform(instruction: Transform, sets: Sequence[ast.expr], scope: Scope) -> ast.expr:
    """Return the call of a transform, built in or the user's; joined sets are one tuple."""
    function = instruction.function
    options = {key: syntax.literal(value) for key, value in instruction.options.items()}
    if not function.builtin:
        return syntax.call(scope.names.imported(function.name), *sets, **options)
    match function.name:
        case "join":
            return syntax.sequence(syntax.spread(each) for each in sets)
        case "clip_norm":
            unused = ("eps",) if not instruction.options.get("eps") else ()
            norm = options.pop("norm")
            return syntax.call("clip_norm", *sets, norm, **{k: v for k, v in options.items() if k not in unused})
        case _:
            return syntax.call(function.name, *sets, **options)
