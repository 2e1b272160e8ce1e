"""Instrumentation: checks of results and writes in a debug build, and ranges for profilers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from compiler.ir.instructions import (
    Apply,
    Assign,
    Blend,
    Effect,
    Emit,
    Gradient,
    Instruction,
    Release,
    Store,
    TakeAccumulated,
)
from compiler.ir.program import Function, InputDecl
from compiler.ir.value import Read
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.flow import find_through
from runtime.codegen.resources import find_uses
from runtime.codegen.scope import line_of, read
from runtime.codegen.text import Block, Line


def start_lines(scope: EmitScope) -> Iterator[Line]:
    """Yield the line that begins a step."""
    if scope.names.checks:
        yield Line(statement=_perform(scope, "start"))


def input_lines(entry: InputDecl, scope: EmitScope) -> Iterator[Line]:
    """Yield the check of an input."""
    if scope.names.checks:
        statement = _perform(scope, "given", syntax.constant(entry.name), syntax.name(scope.names.value(entry.name)))
        yield Line(statement=statement, op=entry.name, place=entry.place)


def instrument(instruction: Instruction, lowered: Lowered, function: Function, scope: EmitScope) -> Lowered:
    """Return the code of an instruction with its checks, where the build is one for debugging."""
    if not scope.names.checks:
        return lowered
    before = tuple(line_of(instruction, each) for each in _before(instruction, function, scope))
    after = tuple(line_of(instruction, each) for each in _after(instruction, scope))
    return replace(lowered, code=(*before, *lowered.code, *after))


def _before(instruction: Instruction, function: Function, scope: EmitScope) -> Iterator[ast.stmt]:
    """Yield the check before a gradient, and the check of the outputs."""
    match instruction:
        case Gradient():
            through = find_through(function.instructions, scope.paths[id(instruction)])
            path = syntax.dictionary({op: _texts(reads) for op, reads in through.items()})
            named = syntax.constant(instruction.op), syntax.constant(instruction.loss)
            yield _perform(scope, "before_gradient", *named, read(instruction.loss, scope), path)
        case Emit():
            values = (each for each in instruction.values if each not in scope.checked)
            yield _perform(scope, "returned", _values(values, scope))
        case _:
            return


def _after(instruction: Instruction, scope: EmitScope) -> Iterator[ast.stmt]:
    """Yield the check of an instruction's results and writes."""
    if not scope.checked.isdisjoint(instruction.defines):
        return  # a verdict is for gradients that are not finite, and for what is made of them
    op, title = syntax.constant(instruction.op), syntax.constant(instruction.title)
    made = _values(instruction.defines, scope)
    used = _values(() if instruction.message else dict.fromkeys(find_uses(instruction)), scope)
    match instruction:
        case Gradient():
            models = instruction.models
            parameters = [syntax.name(scope.names.joint(models))] if models else []
            yield _perform(scope, "differentiated", op, syntax.constant(instruction.loss), made, *parameters)
        case Apply() | Blend() | Assign():
            reads = _texts(_shown(instruction.reads))
            yield _perform(scope, "written", op, title, used, reads, _texts(map(str, instruction.writes)))
        case TakeAccumulated():
            yield _perform(scope, "defined", op, title, made, _values((), scope))
        case Store():
            yield _perform(scope, "defined", op, title, _values([instruction.state], scope), used)
        case Effect():
            return
        case _ if instruction.is_verdict:
            return
        case _:
            cells = {"reads": _shown(instruction.reads), "writes": tuple(map(str, instruction.writes))}
            texts = {key: _texts(each) for key, each in cells.items() if each}
            yield _perform(scope, "defined", op, title, made, used, **texts)


def _shown(cells: tuple[Read, ...]) -> tuple[str, ...]:
    """Return the versions of models that are read; an optimizer reads its own slots, a state is an operand."""
    return tuple(str(each) for each in cells if each.cell.kind != "optimizer" and each.cell.kind != "state")


def _perform(scope: EmitScope, check: str, *arguments: ast.expr, **keywords: ast.expr) -> ast.stmt:
    """Return ``checks.defined(...)``."""
    return syntax.perform(syntax.call(f"{scope.names.checks}.{check}", *arguments, **keywords))


def _values(names: Iterable[str], scope: EmitScope) -> ast.expr:
    """Return the variables of values by name: ``{"fake": fake}``."""
    plain = {name: syntax.call("values_of", read(name, scope)) for name in scope.row_sets}
    return syntax.dictionary({name: plain.get(name, read(name, scope)) for name in names})


def _texts(texts: Iterable[str]) -> ast.expr:
    """Return a tuple of texts."""
    return syntax.sequence(syntax.constant(each) for each in texts)


def in_range(instruction: Instruction, lowered: Lowered, scope: EmitScope) -> Lowered:
    """Return the code of an instruction inside ``with record_function("step_d"):``; unchanged without profiling.

    Releases and returns take no time and get no range.
    """
    if not scope.names.profile or isinstance(instruction, (Release, Emit)) or not lowered.code:
        return lowered
    header = line_of(instruction, syntax.within(scope.dialect.range(instruction.op)))
    return replace(lowered, code=(Block(header=header, body=lowered.code),))
