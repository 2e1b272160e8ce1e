"""The rule of reshape: as many elements as before, one size left open at most."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.operands import Dimension, Shape
from compiler.shapes.dimension import divide, is_surely_unequal, multiply
from compiler.shapes.problem import Place, ShapeProblem
from compiler.shapes.tensor_type import format_shape


def fill_reshape(source: Shape, target: Sequence[Dimension], place: Place) -> Shape:
    """Return ``target`` with its -1 replaced; raise :class:`ShapeProblem` where the counts cannot agree."""
    _check_sizes(target, place)
    count, rest = multiply(source), multiply(size for size in target if size != -1)
    if -1 not in target:
        if is_surely_unequal(count, rest):
            raise _mismatch(source, target, f"{rest}", place)
        return tuple(target)
    open_size = _divide_exactly(source, [size for size in target if size != -1])
    if open_size is None:
        raise _mismatch(source, target, f"a multiple of {rest}", place)
    return tuple(open_size if size == -1 else size for size in target)


def _check_sizes(target: Sequence[Dimension], place: Place) -> None:
    """Refuse sizes below 1 other than one -1."""
    if list(target).count(-1) > 1:
        raise ShapeProblem(place, f"`shape: {format_shape(tuple(target))}`", "-1 at most once")
    for size in target:
        if isinstance(size, int) and size < 1 and size != -1:
            raise ShapeProblem(place, f"`{size}` in `shape`", "sizes from 1 up, or one -1 for what is left")


def _divide_exactly(source: Shape, target: Sequence[Dimension]) -> Dimension | None:
    """Return the size left open once common names cancel; None where it is certainly no whole number."""
    left, right = list(source), list(target)
    for size in target:
        if isinstance(size, str) and size in left:
            left.remove(size)
            right.remove(size)
    count, rest = multiply(left), multiply(right)
    if isinstance(rest, str):
        return f"({count})//({rest})"
    return None if isinstance(count, int) and count % rest else divide(count, rest)


def _mismatch(source: Shape, target: Sequence[Dimension], needed: str, place: Place) -> ShapeProblem:
    found = f"{multiply(source)} elements in {format_shape(source)}"
    expected = f"{needed} elements to fill {format_shape(tuple(target))}"
    return ShapeProblem(place, found, expected, "change `shape`, or the layers or ops before it")
