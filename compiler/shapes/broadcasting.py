"""Broadcasting: shapes aligned at their last axes, where 1 stretches."""

from __future__ import annotations

from itertools import zip_longest

from compiler.operands import Dimension, Shape
from compiler.shapes.dimension import is_surely_incompatible, maximum
from compiler.shapes.function_use import FunctionUse
from compiler.shapes.tensor_type import format_shape


def broadcast(use: FunctionUse) -> Shape | None:
    """Return the shape of an elementwise result; None where an operand's is unknown."""
    result: Shape = ()
    shapes = [tensor.shape for tensor in use.tensors()]
    for index, shape in enumerate(shapes):
        if shape is not None:
            result = _pair(use, index, result, shape)
    return None if None in shapes else result


def _pair(use: FunctionUse, index: int, left: Shape, right: Shape) -> Shape:
    """Return what two shapes broadcast to; refuse operand ``index`` where they surely do not."""
    sizes = list[Dimension]()
    for a, b in zip_longest(reversed(left), reversed(right), fillvalue=1):
        if is_surely_incompatible(a, b):
            expected = f"a shape that `{use.name}` can broadcast with {format_shape(left)}"
            help = "sizes are matched from the last axis; each pair must be equal, or one of them 1"
            raise use.wrong_input(index, f"shape {format_shape(right)}", expected, help)
        sizes.append(maximum(a, b))
    return tuple(reversed(sizes))
