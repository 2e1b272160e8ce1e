"""Lowering of model calls."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Forward
from runtime.codegen import syntax
from runtime.codegen.dialect import Lowered, Scope
from runtime.codegen.flow import is_recomputed
from runtime.codegen.resources import is_lowered
from runtime.codegen.results import find_results, name_results
from runtime.codegen.scope import keywords, line_of, positional, read_comment, with_notes
from runtime.codegen.text import Block, Code, Line


def lower_forward(instruction: Forward, scope: Scope) -> Lowered:
    """Return the call of a model with what it needs around it: frozen weights, keyed randomness, its mode."""
    call = _lowered(instruction, with_notes(instruction, _call_lines(instruction, scope)))
    code = (*call, *_tap_lines(instruction, scope))
    contexts = _contexts(instruction, scope)
    if contexts:
        code = (Block(header=line_of(instruction, syntax.within(*contexts)), body=code),)
    recorded = instruction.graph or not scope.flow.recorded
    return Lowered(
        code=(
            *_switch_lines(instruction, scope),
            *_seek_lines(instruction, scope),
            *_begin_lines(instruction, scope),
            *code,
        ),
        graph="with" if recorded else "without",
    )


def _lowered(instruction: Forward, call: tuple[Line, ...]) -> tuple[Code, ...]:
    """Return the call in the precision of its model: each such block holds one call, and never a write."""
    if not is_lowered(instruction):
        return call
    dtype = syntax.dotted(f"torch.{instruction.compute}")
    region = syntax.call("torch.autocast", syntax.name("device_type"), dtype)
    return (Block(header=line_of(instruction, syntax.within(region)), body=call),)


def _call_lines(instruction: Forward, scope: Scope) -> tuple[Line, ...]:
    """Return the line with the call."""
    comment = read_comment(instruction, instruction.model)
    targets = [scope.names.value(value) for value in find_results(instruction)]
    value = name_results(instruction, _call(instruction, scope), scope)
    value = syntax.call("widened", value) if is_lowered(instruction) and targets else value
    if not targets:
        return (line_of(instruction, syntax.perform(value), comment=comment),)
    if len(targets) == 1:
        value = syntax.method(value, "detach") if instruction.stop and instruction.graph else value
        return (line_of(instruction, syntax.assign(targets[0], value), comment=comment),)
    value = syntax.call("detached", value) if instruction.stop and instruction.graph else value
    return (line_of(instruction, syntax.assign(targets, value), comment=comment),)


def _call(instruction: Forward, scope: Scope) -> ast.expr:
    """Return the call of the model, of its method, or of the model on clones; a checkpoint takes its callee."""
    model = syntax.name(scope.names.model(instruction.model))
    arguments = positional(instruction.arguments, scope)
    named = keywords(instruction.arguments, scope)
    if instruction.snapshot != "none":
        what = syntax.constant(instruction.snapshot)
        extra = {"method": syntax.constant(instruction.method)} if instruction.method else {}
        return syntax.call("snapshot_call", model, what, *arguments, **{**extra, **named})
    callee = model if instruction.method is None else syntax.attribute(model, instruction.method)
    if not instruction.checkpoint:
        return syntax.call(callee, *arguments, **named)
    callee = syntax.call("partial", callee, **named) if named else callee
    if instruction.draws and _draws_by_layers(instruction, scope):
        callee = syntax.call("random.keyed", syntax.constant(instruction.key), callee)
    return syntax.call("checkpoint", callee, *arguments, use_reentrant=syntax.constant(False))


def _tap_lines(instruction: Forward, scope: Scope) -> tuple[Line, ...]:
    """Return the lines that take the results of inner layers out of the model's hooks."""
    seen = syntax.name(scope.names.taps(instruction.model))
    return tuple(
        line_of(instruction, syntax.assign(scope.names.value(value), _tap(instruction, seen, layer)))
        for value, layer in instruction.taps
    )


def _begin_lines(instruction: Forward, scope: Scope) -> tuple[Line, ...]:
    """Return the line that names the inner layers from which a graph has to begin in the call."""
    layers = [syntax.constant(layer) for value, layer in instruction.taps if value in instruction.begun]
    begin = syntax.method(syntax.name(scope.names.taps(instruction.model)), "begin", *layers)
    return (line_of(instruction, syntax.perform(begin)),) if layers else ()


def _tap(instruction: Forward, seen: ast.expr, layer: str) -> ast.expr:
    """Return the result of one inner layer; taken out, so that nothing outlives the step."""
    taken: ast.expr = syntax.method(seen, "pop", syntax.constant(layer))
    taken = syntax.call("widened", taken) if is_lowered(instruction) else taken
    return syntax.method(taken, "detach") if instruction.stop and instruction.graph else taken


def _contexts(instruction: Forward, scope: Scope) -> list[ast.expr]:
    """Return the contexts of the call."""
    contexts: list[ast.expr] = []
    if instruction.graph and instruction.frozen and instruction.model in scope.differentiated:
        contexts.append(syntax.call("frozen", syntax.name(scope.names.parameters(instruction.model))))
    model = scope.program.model(instruction.model)
    again = is_recomputed(instruction, scope.program)
    resting = model.frozen and not model.tied and not again  # its weights would not be frozen the second time
    if instruction.graph and resting and instruction.model in scope.differentiated:
        contexts.append(syntax.call("frozen", syntax.name(scope.names.frozen(instruction.model))))
    if instruction.draws and not _draws_by_layers(instruction, scope):
        contexts.append(syntax.call("random.forked", syntax.constant(instruction.key)))
    return contexts


def _seek_lines(instruction: Forward, scope: Scope) -> tuple[Line, ...]:
    """Return the line that keys what built-in layers draw by the op; a checkpoint does it in both of its calls."""
    if not instruction.draws or instruction.checkpoint or not _draws_by_layers(instruction, scope):
        return ()
    return (line_of(instruction, syntax.perform(syntax.call("random.seek", syntax.constant(instruction.key)))),)


def _draws_by_layers(instruction: Forward, scope: Scope) -> bool:
    """Return whether the model is of built-in layers, which draw keyed numbers themselves."""
    return scope.program.model(instruction.model).kind == "layers"


def _switch_lines(instruction: Forward, scope: Scope) -> tuple[Code, ...]:
    """Return the line that switches the model between training and evaluation, where that must precede the call."""
    if instruction.key not in scope.switches:
        return ()
    model = syntax.name(scope.names.model(instruction.model))
    switch = syntax.method(model, "train" if scope.switches[instruction.key] else "eval")
    return (line_of(instruction, syntax.perform(switch)),)
