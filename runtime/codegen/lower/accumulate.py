"""Lowering of windows: gradients of several steps, and the globals that hold them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.batch.shards import REDUCE, SCATTER
from compiler.ir.instructions import Accumulate, ResetAccumulator, RestoreAccumulator, TakeAccumulated, Transform
from compiler.ir.program import Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitContext, EmitScope, Global, Lowered
from runtime.codegen.lower.overflow import commit_value
from runtime.codegen.lower.row_sets import list_tables
from runtime.codegen.lower.transform import frozen_places
from runtime.codegen.resources import find_instructions, find_windows, is_replicated
from runtime.codegen.scope import line_of, with_notes
from runtime.codegen.shards import whole
from runtime.codegen.text import Line

REGISTER = "WINDOWS"
"""The module's windows by name."""


def lower_accumulate(instruction: Accumulate, scope: EmitScope) -> Lowered:
    """Return ``step_window.add(step_, batch_size)``, or ``step_window.add_absent(batch_size)`` without gradients."""
    rows = [syntax.name("batch_size")] if instruction.reduce == "mean" else []
    named: dict[str, ast.expr] = {}
    if instruction.gradients is None:
        method = "add_absent"
    else:
        gradients: ast.expr = syntax.name(scope.names.value(instruction.gradients))
        if instruction.strict:  # those of parameters that are not currently frozen must be present
            gradients = syntax.call("required", gradients, *frozen_places(instruction, scope))
        method, rows = "add", [gradients, *rows]
        named |= {"count": syntax.name(scope.names.value(instruction.count))} if instruction.count else {}
    named |= {"commits": commit_value(instruction.commits, scope)} if instruction.commits else {}
    call = syntax.method(syntax.name(scope.names.window(instruction.window)), method, *rows, **named)
    return Lowered(code=with_notes(instruction, [line_of(instruction, syntax.perform(call))]))


def lower_take(instruction: TakeAccumulated, scope: EmitScope) -> Lowered:
    """Return ``step_collected = step_window.take()``."""
    window = syntax.name(scope.names.window(instruction.window))
    alone = [syntax.constant(False)] if instruction.alone and instruction.may_miss else []
    found = {instruction.filled: syntax.method(window, "is_filled")} if instruction.filled else {}
    found[instruction.output] = syntax.method(window, "take", *alone)
    lines = [line_of(instruction, syntax.assign(scope.names.value(name), made)) for name, made in found.items()]
    return Lowered(code=with_notes(instruction, lines))


def lower_restore(instruction: RestoreAccumulator, scope: EmitScope) -> Lowered:
    """Return ``step_window.restore()``, which a backend puts under its condition."""
    restored = syntax.method(syntax.name(scope.names.window(instruction.window)), "restore")
    return Lowered(code=with_notes(instruction, [line_of(instruction, syntax.perform(restored))]))


def lower_reset(instruction: ResetAccumulator, scope: EmitScope) -> Lowered:
    """Return ``step_window.drop()``; nothing for a window that no step adds to before it is dropped."""
    if all(each.window != instruction.window for each in find_windows(scope.program)):
        return Lowered(code=(), graph="either")
    dropped = syntax.perform(syntax.method(syntax.name(scope.names.window(instruction.window)), "drop"))
    return Lowered(code=with_notes(instruction, [line_of(instruction, dropped)]))


def find_local_windows(program: Program) -> frozenset[str]:
    """Return the windows of which each process has its own, whose gradients are added up when they are taken."""
    instructions = tuple(find_instructions(program))
    reduced = {
        value
        for each in instructions
        if isinstance(each, Transform) and each.function.name in (REDUCE, SCATTER)
        for value in each.inputs
    }
    takes = (each for each in instructions if isinstance(each, TakeAccumulated))
    return frozenset(each.window for each in takes if each.output in reduced)


def window_globals(context: EmitContext) -> Iterator[Global]:
    """Yield the windows of a program."""
    instructions = find_instructions(context.program)
    restored = {each.window for each in instructions if isinstance(each, RestoreAccumulator)}
    own = context.dialect.own_window if is_replicated(context.program) else ""
    for each in find_windows(context.program):
        models, names = each.models, context.names
        parameters = syntax.name(names.joint(models))
        stepped = whole(parameters) if context.program.is_sharded else parameters
        options: dict[str, ast.expr] = {"is_mean": syntax.constant(False)} if each.reduce == "sum" else {}
        options |= {"is_counted": syntax.constant(True)} if each.count else {}
        options |= {"may_miss": syntax.constant(True)} if each.may_miss else {}
        options |= {"guard": syntax.constant(each.guard)} if each.guard != "none" else {}
        options |= {"keeps_before": syntax.constant(True)} if each.window in restored else {}
        made = syntax.call(own or context.dialect.window, stepped, **options)
        if context.program.has_rows(models):
            made = syntax.call("RowWindow", parameters, list_tables(models, context), **options)
        yield Global(name=names.window(each.window), value=made, place=(each.op, each.place))


def window_registration(context: EmitContext) -> Iterator[Line]:
    """Yield the line that lists the windows by name."""
    listed: dict[str, ast.expr] = {
        each.window: syntax.name(context.names.window(each.window)) for each in find_windows(context.program)
    }
    if listed:
        yield Line(statement=syntax.perform(syntax.call(f"{REGISTER}.update", syntax.dictionary(listed))))


def register_lines(program: Program) -> Iterator[Line]:
    """Yield the dictionary of the windows, where there are any."""
    if find_windows(program):
        yield Line(statement=syntax.register(REGISTER, syntax.name("str"), syntax.name("object")))
