"""Lowering of instructions, each by its own module; what frameworks do differently by the dialect."""

from __future__ import annotations

import ast
from typing import assert_never

from compiler.instructions import (
    Apply,
    Assign,
    Blend,
    Collect,
    Drop,
    Emit,
    Evaluate,
    Forward,
    Gather,
    Gradient,
    Instruction,
    Judge,
    Random,
    Release,
    Schedule,
    Settle,
    Store,
    Transform,
)
from runtime.emission import syntax
from runtime.emission.draw import lower_random
from runtime.emission.evaluate import lower_evaluate
from runtime.emission.scope import Lowered, Scope, hold, line_of, number, with_notes
from runtime.emission.states import lower_store
from runtime.emission.transform import lower_transform
from runtime.emission.verdicts import lower_judge
from runtime.emission.windows import lower_collect, lower_drop, lower_gather
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
        case Schedule():
            return lower_schedule(instruction, scope)
        case Gradient():
            return scope.dialect.gradient(instruction, scope)
        case Transform():
            return lower_transform(instruction, scope)
        case Apply():
            return lower_apply(instruction, scope)
        case Judge():
            return lower_judge(instruction, scope)
        case Settle():
            return scope.dialect.settle(instruction, scope)
        case Gather():
            return lower_gather(instruction, scope)
        case Collect():
            return lower_collect(instruction, scope)
        case Drop():
            return lower_drop(instruction, scope)
        case Blend():
            return lower_blend(instruction, scope)
        case Assign():
            return lower_assign(instruction, scope)
        case Store():
            return lower_store(instruction, scope)
        case Release():
            names = [scope.names.value(value) for value in instruction.values]
            return Lowered(code=(line_of(instruction, syntax.forget(names)),), graph="either")
        case Emit():
            return _lower_emit(instruction, scope)
        case _:
            assert_never(instruction)


def lower_schedule(instruction: Schedule, scope: Scope) -> Lowered:
    """Return the number that a schedule gives in this step as a value."""
    statement = syntax.assign(scope.names.value(instruction.output), number(instruction.number, scope.names))
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def _lower_emit(instruction: Emit, scope: Scope) -> Lowered:
    """Return the outputs of the step, without their graphs."""
    outputs: dict[str, ast.expr] = {}
    held = {state.name for state in scope.program.states}
    for value in instruction.values:
        if value in held:
            outputs[value] = scope.dialect.return_state(hold(value))
            continue
        use = syntax.name(scope.names.value(value))
        outputs[value] = scope.dialect.output(use) if value in scope.flow.carrying else use
    return Lowered(code=(line_of(instruction, syntax.give(syntax.dictionary(outputs))),))
