"""Lowering of what replicas combine: the start of a message, and the wait for what it brings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import CheckFinite, Evaluate, Gradient, Start, Transform
from compiler.ir.program import ParallelDecl, Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Global, Lowered
from runtime.codegen.resources import find_instructions
from runtime.codegen.scope import line_of, read, with_notes
from runtime.codegen.text import Block, Code, Line

REGISTER = "COMPRESSORS"
"""The dictionary of what was not sent of gradient sets, by the message of each."""
COMPRESSORS = {"threshold": "Threshold", "sign": "Sign", "powersgd": "PowerSGD"}
HALVES = {"fp16": "float16", "bf16": "bfloat16"}
METHODS = {"sum": "replicas.start_sum", "gather": "replicas.start_gather"}
"""The method that starts each kind of message."""


def lower_start(instruction: Start, scope: EmitScope) -> Lowered:
    """Return ``step_sent = replicas.start_sum(step_own, loss_own)``, or of rows ``start_gather((out_own, 0))``."""
    sent = [read(part.value, scope) for part in instruction.parts]
    if instruction.keeps_rest_of:
        method = f"{scope.names.compressor(instruction.output)}.start"
    else:
        method = METHODS[instruction.collective]
    if instruction.collective == "gather":
        axes = (syntax.constant(part.axis) for part in instruction.parts)
        sent = [syntax.sequence(pair) for pair in zip(sent, axes, strict=True)]
    started = syntax.call(method, *sent)
    statement = syntax.assign(scope.names.value(instruction.output), started)
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def sending(
    instruction: Gradient, code: tuple[Code, ...], parallel: ParallelDecl, scope: EmitScope
) -> tuple[Code, ...]:
    """Return the code of a gradient, in a block that sends its set while it is taken, where that may leave so."""
    is_changed = instruction.scaled or instruction.rows or instruction.create_graph or instruction.weights is not None
    if parallel.bucket_mb is None or is_changed:
        return code
    if instruction.output not in scope.sent:
        return code
    context = syntax.call("replicas.sending", syntax.name(scope.names.joint(instruction.models)))
    return (Block(header=line_of(instruction, syntax.within(context)), body=code),)


def await_message(instruction: Evaluate | Transform | CheckFinite, scope: EmitScope) -> ast.expr:
    """Return ``step_sent.wait(0)``: what all replicas have of a value, by its place in the message."""
    start = scope.makers[instruction.message]
    assert isinstance(start, Start)
    place = next(at for at, part in enumerate(start.parts) if instruction.defines[0] in part.wholes)
    return syntax.call(f"{scope.names.value(instruction.message)}.wait", syntax.constant(place))


def replicas_global(parallel: ParallelDecl) -> Global:
    """Return the register of processes, with the options of their messages."""
    options: dict[str, ast.expr] = {}
    if parallel.bucket_mb is not None:
        options["bucket_mb"] = syntax.constant(parallel.bucket_mb)
    if parallel.compress is not None and parallel.compress.kind in HALVES:
        options["half"] = syntax.constant(HALVES[parallel.compress.kind])
    return Global(name="replicas", value=syntax.call("Replicas", syntax.name("device"), **options))


def compressor_globals(parallel: ParallelDecl, context: EmitContext) -> Iterator[Global]:
    """Yield what keeps the rest of each gradient set that is sent in part."""
    for each in find_compressed(context.program):
        assert parallel.compress is not None
        options = {name: syntax.literal(value) for name, value in parallel.compress.options.items()}
        parameters = syntax.name(context.names.joint(each.parts[0].models))
        made = syntax.call(COMPRESSORS[parallel.compress.kind], syntax.name("replicas"), parameters, **options)
        yield Global(name=context.names.compressor(each.output), value=made, place=(each.op, each.place))


def compressor_registration(context: EmitContext) -> Iterator[Line]:
    """Yield the line that lists these by the name of the set."""
    listed: dict[str, ast.expr] = {
        each.parts[0].wholes[0]: syntax.name(context.names.compressor(each.output))
        for each in find_compressed(context.program)
    }
    if listed:
        yield Line(statement=syntax.perform(syntax.call(f"{REGISTER}.update", syntax.dictionary(listed))))


def register_lines(program: Program) -> Iterator[Line]:
    """Yield the dictionary of these, where there are any."""
    if find_compressed(program):
        yield Line(statement=syntax.register(REGISTER, syntax.name("str"), syntax.name("object")))


def find_compressed(program: Program) -> tuple[Start, ...]:
    """Return the starts of sets that are sent in part, each message once."""
    starts = (each for each in find_instructions(program) if isinstance(each, Start) and each.keeps_rest_of)
    return tuple({each.output: each for each in starts}.values())
