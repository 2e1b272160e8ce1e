"""Norms: measures the gradients of every update, where a step is built to report them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from compiler.ir.instructions import Apply, Instruction, Transform
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Global, Lowered
from runtime.codegen.lower.row_sets import read_values
from runtime.codegen.lower.transform import SHARDING
from runtime.codegen.resources import find_instructions
from runtime.codegen.scope import line_of

LAST = frozenset({"join", "clip_agc", "clip_norm", "clip_value"})
"""The first instructions that take the final gradients of an update."""


def measured(instruction: Instruction, lowered: Lowered, scope: EmitScope) -> Lowered:
    """Return the code of an instruction, after ``norms.keep("step_d", step_d)`` where an update begins with it.

    The measured gradients are those of the update: of a whole window, without the loss scale, before clipping.
    """
    if not scope.names.norms or find_first(scope.by_op[instruction.op]) is not instruction:
        return lowered
    if isinstance(instruction, Apply):
        sets = dict.fromkeys(part.gradients for part in instruction.parts)
    else:
        sets = dict.fromkeys(instruction.inputs if isinstance(instruction, Transform) else ())
    taken: list[ast.expr] = []
    for value in sets:
        gradients = syntax.name(scope.names.value(value))
        maker = scope.makers[value]
        if isinstance(maker, Transform) and (maker.is_sharded or maker.function.name in SHARDING):
            # Of a set of which this process has shards the length alone.
            length = syntax.call("shards.length", gradients, syntax.name(scope.names.joint(maker.models)))
            taken.append(syntax.sequence((length,)))
        else:
            taken.append(read_values(gradients) if instruction.rows else gradients)
    kept = syntax.perform(syntax.call(f"{scope.names.norms}.keep", syntax.constant(instruction.op), *taken))
    return replace(lowered, code=(line_of(instruction, kept), *lowered.code))


def find_first(instructions: Sequence[Instruction]) -> Instruction | None:
    """Return the instruction of an op by which an update begins with its gradients; None for other ops."""
    if not any(isinstance(each, Apply) for each in instructions):
        return None
    own = (each for each in instructions if isinstance(each, Apply | Transform))
    return next(each for each in own if isinstance(each, Apply) or each.function.name in LAST)


def norm_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the register of the norms, by update."""
    if context.names.norms:
        instructions = find_instructions(context.program)
        ops = dict.fromkeys(each.op for each in instructions if isinstance(each, Apply))
        updates = syntax.listing(map(syntax.constant, ops))
        yield Global(name=context.names.norms, value=syntax.call("Norms", updates))
