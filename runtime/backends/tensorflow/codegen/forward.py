"""Lowering of model calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Forward, Gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.flow import is_modal, is_recomputed
from runtime.codegen.lower.adapt import find_weights
from runtime.codegen.lower.forward import draw_key, find_arguments, receive_results, tap_lines
from runtime.codegen.scope import keywords, line_of, with_notes
from runtime.codegen.text import Line


def lower_forward(instruction: Forward, scope: EmitScope) -> Lowered:
    """Return the call of a model, with ``training`` wherever it matters, after the line that keys its draws."""
    is_joined, stop = is_recomputed(instruction, scope.program), instruction.stop
    call = receive_results(instruction, _call(instruction, scope), scope, is_stopped=stop, is_joined=is_joined)
    after = (*with_notes(instruction, [call]), *tap_lines(instruction, scope, is_stopped=stop))
    return Lowered(code=(*_lines_before(instruction, scope), *after))


def _lines_before(instruction: Forward, scope: EmitScope) -> Iterator[Line]:
    """Yield the lines that key a model's draws by the op, and let tapes watch results of inner layers for gradients."""
    if instruction.draws and not instruction.checkpoint:  # a checkpoint does it in both of its calls
        op, *states = _key(instruction, scope)
        key = syntax.call("random.rekey" if states else "random.seek", op, *states)
        yield line_of(instruction, syntax.perform(key))
    instructions = scope.function.instructions
    for value, layer in instruction.taps:
        takers = (each for each in instructions if isinstance(each, Gradient) and value in each.target_values)
        inside = (each for each in takers if id(instruction) in scope.paths[id(each)])
        tapes = dict.fromkeys(scope.tapes[id(each)] for each in inside)
        if tapes and value in instruction.begun:
            seen = syntax.name(scope.names.taps(instruction.model))
            begin = syntax.method(seen, "begin", syntax.constant(layer), *map(syntax.name, tapes))
            yield line_of(instruction, syntax.perform(begin))


def _call(instruction: Forward, scope: EmitScope) -> ast.expr:
    """Return the call of a model, or of its method; a user's model gets the arguments that its signature takes."""
    model, decl = syntax.name(scope.names.model(instruction.model)), scope.program.model(instruction.model)
    arguments, named = find_arguments(instruction, scope), keywords(instruction.arguments, scope)
    method = {"method": syntax.constant(instruction.method)} if instruction.method else {}
    options = {"training": syntax.constant(instruction.train), **method, **named}
    if instruction.weights is not None:
        weights = find_weights(instruction.weights, scope)
        return syntax.call("call_with", model, weights, *arguments, **options)
    if decl.kind != "class":
        mode = {"training": syntax.constant(instruction.train)} if is_modal(decl) else {}
        return _checkpointed(instruction, scope, model, *arguments, **{**named, **mode})
    return _checkpointed(instruction, scope, syntax.name("call_model"), model, *arguments, **options)


def _checkpointed(
    instruction: Forward, scope: EmitScope, callee: ast.expr, *arguments: ast.expr, **named: ast.expr
) -> ast.expr:
    """Return a call, or its form that lets gradients repeat it."""
    if not instruction.checkpoint:
        return syntax.call(callee, *arguments, **named)
    if instruction.draws:
        op, *states = _key(instruction, scope)
        callee = syntax.call("random.keyed", op, callee, *states)
    return syntax.call("checkpointed", callee, *arguments, **named)


def _key(instruction: Forward, scope: EmitScope) -> tuple[ast.expr, ...]:
    """Return the op by which a model's draws are keyed, and the states that a user's model draws from."""
    op = draw_key(instruction)
    if scope.program.model(instruction.model).kind != "class":
        return (op,)
    return op, syntax.name(scope.names.generators(instruction.model))
