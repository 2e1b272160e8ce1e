"""Lowering of what replicas combine: the start of a message, and the wait for what it brings."""

from __future__ import annotations

import ast

from compiler.ir.instructions import CheckFinite, Evaluate, Gradient, Start, Transform
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.scope import line_of, read, with_notes
from runtime.codegen.text import Block, Code

METHODS = {"sum": "replicas.start_sum", "gather": "replicas.start_gather"}
"""The method that starts each kind of message."""


def lower_start(instruction: Start, scope: EmitScope) -> Lowered:
    """Return ``step_sent = replicas.start_sum(step_own, loss_own)``, or of rows ``start_gather((out_own, 0))``."""
    sent = [read(part.value, scope) for part in instruction.parts]
    if instruction.collective == "gather":
        axes = (syntax.constant(part.axis) for part in instruction.parts)
        sent = [syntax.sequence(pair) for pair in zip(sent, axes, strict=True)]
    started = syntax.call(METHODS[instruction.collective], *sent)
    statement = syntax.assign(scope.names.value(instruction.output), started)
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def sending(instruction: Gradient, code: tuple[Code, ...], scope: EmitScope) -> tuple[Code, ...]:
    """Return the code of a gradient, in a block that sends its set while it is taken, where that may leave so."""
    parallel = scope.program.parallel
    is_changed = instruction.scaled or instruction.rows or instruction.create_graph or instruction.weights is not None
    if parallel is None or parallel.bucket_mb is None or is_changed:
        return code
    starts = (each for each in scope.function.instructions if isinstance(each, Start))
    if not any(part.value == instruction.output for each in starts for part in each.parts):
        return code
    context = syntax.call("replicas.sending", syntax.name(scope.names.joint(instruction.models)))
    return (Block(header=line_of(instruction, syntax.within(context)), body=code),)


def await_message(instruction: Evaluate | Transform | CheckFinite, scope: EmitScope) -> ast.expr:
    """Return ``step_sent.wait(0)``: what all replicas have of a value, by its place in the message."""
    starts = (each for each in scope.function.instructions if isinstance(each, Start))
    start = next(each for each in starts if each.output == instruction.message)
    place = [part.whole for part in start.parts].index(instruction.defines[0])
    return syntax.call(f"{scope.names.value(instruction.message)}.wait", syntax.constant(place))
