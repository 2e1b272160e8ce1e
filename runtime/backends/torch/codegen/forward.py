"""Lowering of model calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Forward
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.flow import is_recomputed
from runtime.codegen.lower.adapt import find_weights
from runtime.codegen.lower.forward import draw_key, find_arguments, receive_results, tap_lines
from runtime.codegen.resources import is_lowered
from runtime.codegen.scope import keywords, line_of, with_notes
from runtime.codegen.shards import recorded
from runtime.codegen.text import Block, Code, Line


def lower_forward(instruction: Forward, scope: EmitScope) -> Lowered:
    """Return the call of a model with what it needs around it: frozen weights, keyed randomness, its mode."""
    is_stopped = instruction.stop and instruction.graph
    call = receive_results(instruction, _call(instruction, scope), scope, is_stopped=is_stopped)
    code: tuple[Code, ...] = with_notes(instruction, [call])
    if is_lowered(instruction):  # such a block holds one call, and never a write
        dtype = syntax.dotted(f"torch.{instruction.compute}")
        region = syntax.call("torch.autocast", syntax.name("device_type"), dtype)
        code = (Block(header=line_of(instruction, syntax.within(region)), body=code),)
    code = (*code, *tap_lines(instruction, scope, is_stopped=is_stopped))
    contexts = _contexts(instruction, scope)
    if contexts:
        # Calls that share a block have all weights frozen that one of them freezes: only where each freezes its own.
        joins = len(contexts) == 1 and _is_frozen(instruction, scope)
        code = (Block(header=line_of(instruction, syntax.within(*contexts)), body=code, joins=joins),)
    recorded = instruction.graph or not scope.flow.recorded
    return Lowered(code=(*_lines_before(instruction, scope), *code), graph="with" if recorded else "without")


def _lines_before(instruction: Forward, scope: EmitScope) -> Iterator[Line]:
    """Yield the lines that switch the model's mode, key its draws, and let graphs begin at results of inner layers."""
    model = syntax.name(scope.names.model(instruction.model))
    if instruction.key in scope.switches:
        switch = syntax.method(model, "train" if scope.switches[instruction.key] else "eval")
        yield line_of(instruction, syntax.perform(switch))
    # A checkpoint keys what built-in layers draw in both of its calls.
    if instruction.draws and not instruction.checkpoint and _draws_by_layers(instruction, scope):
        yield line_of(instruction, syntax.perform(syntax.call("random.seek", draw_key(instruction))))
    layers = [syntax.constant(layer) for value, layer in instruction.taps if value in instruction.begun]
    if layers:
        begin = syntax.method(syntax.name(scope.names.taps(instruction.model)), "begin", *layers)
        yield line_of(instruction, syntax.perform(begin))


def _call(instruction: Forward, scope: EmitScope) -> ast.expr:
    """Return the call of the model, of its method, or of the model on clones; a checkpoint takes its callee."""
    model = syntax.name(scope.names.model(instruction.model))
    arguments = find_arguments(instruction, scope)
    named = keywords(instruction.arguments, scope)
    method = {"method": syntax.constant(instruction.method)} if instruction.method else {}
    if instruction.weights is not None:
        path = "call_with" if instruction.snapshot == "none" else "snapshot_call_with"
        weights = find_weights(instruction.weights, scope)
        return syntax.call(path, model, weights, *arguments, **{**method, **named})
    if instruction.snapshot != "none":
        what = syntax.constant(instruction.snapshot)
        return syntax.call("snapshot_call", model, what, *arguments, **{**method, **named})
    callee = model if instruction.method is None else syntax.attribute(model, instruction.method)
    if not instruction.checkpoint:
        return syntax.call(callee, *arguments, **named)
    callee = syntax.call("partial", callee, **named) if named else callee
    if instruction.draws and _draws_by_layers(instruction, scope):
        callee = syntax.call("random.keyed", draw_key(instruction), callee)
    return syntax.call("checkpoint", callee, *arguments, use_reentrant=syntax.constant(False))


def _contexts(instruction: Forward, scope: EmitScope) -> list[ast.expr]:
    """Return the contexts of the call."""
    frozen_lists: list[ast.expr] = []
    if _is_frozen(instruction, scope):
        frozen_lists.append(syntax.name(scope.names.parameters(instruction.model)))
    model = scope.program.model(instruction.model)
    again = is_recomputed(instruction, scope.program)
    frozen = model.frozen and not model.tied and not again  # its weights would not be frozen the second time
    if instruction.graph and frozen and instruction.model in scope.needs.differentiated:
        frozen_lists.append(syntax.name(scope.names.frozen(instruction.model)))
    contexts: list[ast.expr] = [
        syntax.call(scope.dialect.freezing, recorded(listed) if scope.program.is_sharded else listed)
        for listed in frozen_lists
    ]
    if instruction.draws and not _draws_by_layers(instruction, scope):
        contexts.append(syntax.call("random.forked", draw_key(instruction)))
    return contexts


def _is_frozen(instruction: Forward, scope: EmitScope) -> bool:
    """Return whether a call is recorded, but not for the weights of its model."""
    return instruction.graph and instruction.frozen and instruction.model in scope.needs.differentiated


def _draws_by_layers(instruction: Forward, scope: EmitScope) -> bool:
    """Return whether the model is of built-in layers, which draw keyed numbers themselves."""
    return scope.program.model(instruction.model).kind == "layers"
