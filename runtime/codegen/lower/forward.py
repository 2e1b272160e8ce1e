"""The common part of lowering model calls: how their results, and those of inner layers, are assigned."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Forward
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope
from runtime.codegen.resources import is_lowered
from runtime.codegen.scope import line_of, positional, read_comment
from runtime.codegen.text import Line


def receive_results(
    instruction: Forward, call: ast.expr, scope: EmitScope, *, is_stopped: bool, is_joined: bool = False
) -> Line:
    """Return the line with a call: ``y = net(x)``, ``logits = result(net(x), "logits")`` where outputs have names.

    ``is_stopped``: the results pass no gradient back; ``is_joined``: gradients must reach several only together.
    """
    comment = read_comment(instruction, instruction.model)
    tapped = dict(instruction.taps)
    names = [value for value in instruction.outputs if value not in tapped]
    targets = [scope.names.value(value) for value in names]
    is_named = instruction.named and scope.program.model(instruction.model).kind == "class"
    if (len(names) > 1 or (is_named and names)) and not instruction.joined:
        call = syntax.call("result" if len(names) == 1 else "results", call, *map(syntax.constant, names))
    call = syntax.call("widened", call) if is_lowered(instruction) and targets else call
    if instruction.joined:
        call = scope.dialect.cut(call, syntax.name(scope.names.value(instruction.operands[0])), len(targets))
    if not targets:
        return line_of(instruction, syntax.perform(call), comment=comment)
    if len(targets) == 1:
        value = scope.dialect.detach(call) if is_stopped else call
        return line_of(instruction, syntax.assign(targets[0], value), comment=comment)
    call = syntax.call("together", call) if is_joined else call
    call = syntax.call("detached", call) if is_stopped else call
    return line_of(instruction, syntax.assign(targets, call), comment=comment)


def find_arguments(instruction: Forward, scope: EmitScope) -> list[ast.expr]:
    """Return the positional arguments of a call; one that makes several calls takes the rows of all."""
    arguments = positional(instruction.arguments, scope)
    return [scope.dialect.unite(arguments)] if instruction.joined else arguments


def tap_lines(instruction: Forward, scope: EmitScope, *, is_stopped: bool) -> Iterator[Line]:
    """Yield the lines that take the results of inner layers out of a model's hooks: nothing outlives the step."""
    for value, layer in instruction.taps:
        seen = syntax.name(scope.names.taps(instruction.model))
        taken: ast.expr = syntax.method(seen, "pop", syntax.constant(layer))
        taken = syntax.call("widened", taken) if is_lowered(instruction) else taken
        taken = scope.dialect.detach(taken) if is_stopped else taken
        yield line_of(instruction, syntax.assign(scope.names.value(value), taken))


def draw_key(instruction: Forward) -> ast.expr:
    """Return the key of what a call draws: ``"fake"``, or ``replicas.key("fake")`` on the rows of a replica."""
    key = syntax.constant(instruction.key)
    return syntax.call("replicas.key", key) if instruction.is_replica else key
