"""Lowering of instructions, each by its own module; what frameworks do differently by the dialect."""

from __future__ import annotations

import ast
from typing import assert_never

from compiler.program import (
    Apply,
    Assign,
    Blend,
    Emit,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    Random,
    Release,
    Transform,
)
from runtime.emission import syntax
from runtime.emission.draw import lower_random
from runtime.emission.evaluate import lower_evaluate
from runtime.emission.gradients import lower_transform
from runtime.emission.scope import Lowered, Scope, line_of
from runtime.emission.writes import lower_apply, lower_assign, lower_blend


def lower(instruction: Instruction, scope: Scope) -> Lowered:
    """Return the code of an instruction."""
    match instruction:
        case Forward():
            return scope.dialect.forward(instruction, scope)
        case Evaluate():
            return lower_evaluate(instruction, scope)
        case Random():
            return lower_random(instruction, scope)
        case Gradient():
            return scope.dialect.gradient(instruction, scope)
        case Transform():
            return lower_transform(instruction, scope)
        case Apply():
            return lower_apply(instruction, scope)
        case Blend():
            return lower_blend(instruction, scope)
        case Assign():
            return lower_assign(instruction, scope)
        case Release():
            names = [scope.names.value(value) for value in instruction.values]
            return Lowered(code=(line_of(instruction, syntax.forget(names)),), graph="either")
        case Emit():
            return _lower_emit(instruction, scope)
        case _:
            assert_never(instruction)


def _lower_emit(instruction: Emit, scope: Scope) -> Lowered:
    """Return the outputs of the step, without their graphs."""
    outputs: dict[str, ast.expr] = {}
    for value in instruction.values:
        use = syntax.name(scope.names.value(value))
        outputs[value] = scope.dialect.output(use) if value in scope.flow.carrying else use
    return Lowered(code=(line_of(instruction, syntax.give(syntax.dictionary(outputs))),))
