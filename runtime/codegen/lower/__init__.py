"""Lowering of instructions, each by its own module; differences of frameworks are left to the dialect."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from compiler.ir.instructions import (
    Accumulate,
    Adapt,
    AllFinite,
    AnyFinite,
    Apply,
    Assign,
    Blend,
    CheckFinite,
    Emit,
    Evaluate,
    Forward,
    Gradient,
    Instruction,
    InstructionBase,
    Random,
    Release,
    ResetAccumulator,
    ResolveOverflow,
    RestoreAccumulator,
    Schedule,
    Start,
    Store,
    TakeAccumulated,
    Transform,
)
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.accumulate import lower_accumulate, lower_reset, lower_restore, lower_take
from runtime.codegen.lower.adapt import lower_adapt
from runtime.codegen.lower.evaluate import lower_evaluate, lower_random
from runtime.codegen.lower.messages import lower_start
from runtime.codegen.lower.overflow import lower_all, lower_any, lower_check
from runtime.codegen.lower.states import lower_store
from runtime.codegen.lower.transform import lower_transform
from runtime.codegen.lower.writes import lower_apply, lower_assign, lower_blend
from runtime.codegen.scope import hold, line_of, number, with_notes
from runtime.codegen.shards import release
from runtime.codegen.text import Line

Kind = TypeVar("Kind", bound=InstructionBase)
LowerFn: TypeAlias = Callable[[InstructionBase, EmitScope], Lowered]


def lower(instruction: Instruction, scope: EmitScope) -> Lowered:
    """Return the code of an instruction."""
    lowered = LOWERINGS[type(instruction)](instruction, scope)
    return replace(lowered, code=release(instruction, lowered.code, scope)) if scope.program.is_sharded else lowered


def _row(kind: type[Kind], lowering: Callable[[Kind, EmitScope], Lowered]) -> tuple[type[InstructionBase], LowerFn]:
    """Return a row of the table."""

    def apply(instruction: InstructionBase, scope: EmitScope) -> Lowered:
        """Lower an instruction, which is of this kind."""
        assert isinstance(instruction, kind)
        return lowering(instruction, scope)

    return kind, apply


def _lower_release(instruction: Release, scope: EmitScope) -> Lowered:
    """Return the line that forgets values."""
    names = [scope.names.value(value) for value in instruction.values]
    return Lowered(code=(line_of(instruction, syntax.forget(names)),), graph="either")


def _lower_schedule(instruction: Schedule, scope: EmitScope) -> Lowered:
    """Return the number of a schedule in this step as a value."""
    statement = syntax.assign(scope.names.value(instruction.output), number(instruction.number, scope.names))
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]), graph="either")


def _lower_emit(instruction: Emit, scope: EmitScope) -> Lowered:
    """Return the outputs of the step, without their graphs."""
    outputs: dict[str, ast.expr] = {}
    held = {state.name for state in scope.program.states}
    for value in instruction.values:
        if value in held:
            outputs[value] = scope.dialect.return_state(hold(value))
            continue
        use = syntax.name(scope.names.value(value))
        outputs[value] = scope.dialect.output(use) if value in scope.flow.carrying else use
    given = line_of(instruction, syntax.give(syntax.dictionary(outputs)))
    return Lowered(code=(*_share_buffers(instruction, scope), given))


def _share_buffers(instruction: Emit, scope: EmitScope) -> Iterator[Line]:
    """Yield the line after which all replicas have the same buffers, where a step writes some."""
    parallel = scope.program.parallel
    if parallel is None or parallel.buffers == "local":
        return
    lists = [
        syntax.spread(syntax.name(scope.names.buffers(model)))
        for model in scope.program.find_written_buffers(scope.function)
    ]
    if lists:
        shared = syntax.call("replicas.share_buffers", syntax.listing(lists), syntax.constant(parallel.buffers))
        yield line_of(instruction, syntax.perform(shared))


LOWERINGS: Mapping[type[InstructionBase], LowerFn] = dict(
    (
        _row(Forward, lambda each, scope: scope.dialect.forward(each, scope)),
        _row(Evaluate, lower_evaluate),
        _row(Random, lower_random),
        _row(Schedule, _lower_schedule),
        _row(Gradient, lambda each, scope: scope.dialect.gradient(each, scope)),
        _row(Transform, lower_transform),
        _row(Adapt, lower_adapt),
        _row(CheckFinite, lower_check),
        _row(AllFinite, lower_all),
        _row(AnyFinite, lower_any),
        _row(Start, lower_start),
        _row(Accumulate, lower_accumulate),
        _row(TakeAccumulated, lower_take),
        _row(RestoreAccumulator, lower_restore),
        _row(ResetAccumulator, lower_reset),
        _row(Apply, lower_apply),
        _row(Blend, lower_blend),
        _row(Assign, lower_assign),
        _row(Store, lower_store),
        _row(ResolveOverflow, lambda each, scope: scope.dialect.resolve_overflow(each, scope)),
        _row(Release, _lower_release),
        _row(Emit, _lower_emit),
    )
)
"""The kinds of instructions: one line each."""
