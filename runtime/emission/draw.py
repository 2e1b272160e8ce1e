"""Lowering of keyed random draws."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Gather, Random
from compiler.ir.program import Function, InputDecl
from compiler.ir.value import Dimension
from runtime.effects import find_sized_input
from runtime.emission import syntax
from runtime.emission.scope import Lowered, Scope, line_of, read, setting, with_notes
from runtime.emission.text import Line

BATCH = "batch"
"""The free dimension that is the size of a batch."""


def lower_random(instruction: Random, scope: Scope) -> Lowered:
    """Return a draw under the op's name: ``z = random.normal("z", (batch_size, 32))``."""
    options = {key: setting(value, scope) for key, value in instruction.options.items()}
    drawn = syntax.call(
        f"random.{instruction.distribution}", syntax.constant(instruction.op), _extent(instruction, scope), **options
    )
    statement = syntax.assign(scope.names.value(instruction.output), drawn)
    lines = with_notes(instruction, [line_of(instruction, statement)])
    return Lowered(code=lines, graph="either")


def _extent(instruction: Random, scope: Scope) -> ast.expr:
    """Return the shape of a draw, for a permutation its length."""
    if instruction.like is not None:
        shape = scope.dialect.shape(read(instruction.like, scope))
        shape = scope.dialect.with_rows(shape, syntax.name("batch_size")) if instruction.gathered else shape
        return syntax.item(shape, syntax.constant(0)) if instruction.distribution == "permutation" else shape
    sizes = [size_of(dimension, scope) for dimension in instruction.shape or ()]
    return sizes[0] if instruction.distribution == "permutation" else syntax.sequence(sizes)


def size_of(dimension: Dimension, scope: Scope) -> ast.expr:
    """Return a size: a number, the batch size, or that of the first input with the free dimension."""
    if isinstance(dimension, int):
        return syntax.constant(dimension)
    if dimension == BATCH:
        return syntax.name("batch_size")
    return _size(find_sized_input(scope.program, dimension, scope.function), dimension, scope)


def _size(entry: InputDecl, dimension: str, scope: Scope) -> ast.expr:
    """Return ``image.shape[k]`` for a free dimension of an input; of one that does not declare it, the first."""
    shape = entry.shape or ()
    axis = shape.index(dimension) if dimension in shape else 0
    sizes = scope.dialect.shape(syntax.name(scope.names.value(entry.name)))
    return syntax.item(sizes, syntax.constant(axis))


def batch_size_lines(function: Function, scope: Scope) -> tuple[Line, ...]:
    """Return ``batch_size = image.shape[0]`` where some draw needs it, or a window counts it."""
    draws = (each for each in function.instructions if isinstance(each, Random))
    is_counted = any(isinstance(each, Gather) and each.reduce == "mean" for each in function.instructions)
    if not is_counted and not any(BATCH in (draw.shape or ()) or draw.gathered for draw in draws):
        return ()
    entry = find_sized_input(scope.program, BATCH, function)
    size = syntax.assign("batch_size", _size(entry, BATCH, scope))
    return (Line(statement=size, op=entry.name, place=entry.place),)
