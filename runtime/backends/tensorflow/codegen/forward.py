"""Lowering of model calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Forward, Gradient
from compiler.ir.program import ModelDecl
from runtime.codegen import syntax
from runtime.codegen.dialect import Lowered, Scope
from runtime.codegen.flow import find_path, is_modal, is_recomputed
from runtime.codegen.resources import is_lowered
from runtime.codegen.results import find_results, name_results
from runtime.codegen.scope import keywords, line_of, positional, read_comment, with_notes
from runtime.codegen.text import Line


def lower_forward(instruction: Forward, scope: Scope) -> Lowered:
    """Return the call of a model, with ``training`` wherever it matters, after the line that keys its draws."""
    call = with_notes(instruction, [_call_line(instruction, scope)])
    before = (*_key_lines(instruction, scope), *_begin_lines(instruction, scope))
    return Lowered(code=(*before, *call, *_tap_lines(instruction, scope)))


def _call_line(instruction: Forward, scope: Scope) -> Line:
    """Return the line with the call."""
    comment = read_comment(instruction, instruction.model)
    targets = [scope.names.value(each) for each in find_results(instruction)]
    value = name_results(instruction, _call(instruction, scope), scope)
    value = syntax.call("widened", value) if is_lowered(instruction) and targets else value
    if not targets:
        return line_of(instruction, syntax.perform(value), comment=comment)
    if len(targets) == 1:
        value = syntax.call("tf.stop_gradient", value) if instruction.stop else value
        return line_of(instruction, syntax.assign(targets[0], value), comment=comment)
    value = syntax.call("together", value) if is_recomputed(instruction, scope.program) else value
    value = syntax.call("detached", value) if instruction.stop else value
    return line_of(instruction, syntax.assign(targets, value), comment=comment)


def _call(instruction: Forward, scope: Scope) -> ast.expr:
    """Return the call of a model, or of its method; a user's model gets the arguments that its signature takes."""
    model, decl = syntax.name(scope.names.model(instruction.model)), scope.program.model(instruction.model)
    arguments, named = positional(instruction.arguments, scope), keywords(instruction.arguments, scope)
    if decl.kind != "class":
        return _checkpointed(instruction, scope, model, *arguments, **{**named, **_mode(instruction, decl)})
    method = {"method": syntax.constant(instruction.method)} if instruction.method else {}
    options = {"training": syntax.constant(instruction.train), **method, **named}
    return _checkpointed(instruction, scope, syntax.name("call_model"), model, *arguments, **options)


def _checkpointed(
    instruction: Forward, scope: Scope, callee: ast.expr, *arguments: ast.expr, **named: ast.expr
) -> ast.expr:
    """Return a call, or its form that lets gradients repeat it."""
    if not instruction.checkpoint:
        return syntax.call(callee, *arguments, **named)
    if instruction.draws:
        op, *states = _key(instruction, scope)
        callee = syntax.call("random.keyed", op, callee, *states)
    return syntax.call("checkpointed", callee, *arguments, **named)


def _mode(instruction: Forward, decl: ModelDecl) -> dict[str, ast.expr]:
    """Return ``training=...`` for built-in layers that behave differently in training."""
    return {"training": syntax.constant(instruction.train)} if is_modal(decl) else {}


def _tap_lines(instruction: Forward, scope: Scope) -> Iterator[Line]:
    """Yield the lines that take the results of inner layers."""
    for value, layer in instruction.taps:
        seen = syntax.name(scope.names.taps(instruction.model))
        taken: ast.expr = syntax.method(seen, "pop", syntax.constant(layer))
        taken = syntax.call("widened", taken) if is_lowered(instruction) else taken
        taken = syntax.call("tf.stop_gradient", taken) if instruction.stop else taken
        yield line_of(instruction, syntax.assign(scope.names.value(value), taken))


def _begin_lines(instruction: Forward, scope: Scope) -> Iterator[Line]:
    """Yield the lines that let tapes watch the results of inner layers, for gradients with respect to them."""
    instructions = scope.function.instructions
    for value, layer in instruction.taps:
        takers = (each for each in instructions if isinstance(each, Gradient) and value in each.values)
        inside = (each for each in takers if id(instruction) in find_path(each, instructions, scope.program))
        tapes = dict.fromkeys(scope.tapes[id(each)] for each in inside)
        if tapes and value in instruction.begun:
            seen = syntax.name(scope.names.taps(instruction.model))
            begin = syntax.method(seen, "begin", syntax.constant(layer), *map(syntax.name, tapes))
            yield line_of(instruction, syntax.perform(begin))


def _key_lines(instruction: Forward, scope: Scope) -> Iterator[Line]:
    """Yield the line that keys the draws of a model by the op; a checkpoint does it in both of its calls."""
    if instruction.draws and not instruction.checkpoint:
        op, *states = _key(instruction, scope)
        key = syntax.call("random.rekey" if states else "random.seek", op, *states)
        yield line_of(instruction, syntax.perform(key))


def _key(instruction: Forward, scope: Scope) -> tuple[ast.expr, ...]:
    """Return the op by which a model's draws are keyed, and the states that a user's model draws from."""
    op = syntax.constant(instruction.key)
    if scope.program.model(instruction.model).kind != "class":
        return (op,)
    return op, syntax.name(scope.names.generators(instruction.model))
