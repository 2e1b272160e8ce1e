"""Shapes of functions that put tensors together or take them apart along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.value import Dimension, Shape
from compiler.types import dimension
from compiler.types.call import FunctionUse
from compiler.types.dimension import TensorType, add, divide, format_shape, is_surely_unequal, least
from compiler.types.dtype import promote


def concat(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type concat: sizes along the axis add up, the others agree."""
    shapes = _known_shapes(use)
    axes = [use.axis(shape) if shape else _refuse_scalar(use, index) for index, shape in shapes]
    shape = _agreed(use, shapes, axes[0] if axes else None)
    if shape is not None and len(shapes) == len(use.inputs):
        axis = axes[0]
        shape = (*shape[:axis], dimension.total(each[axis] for _, each in shapes), *shape[axis + 1 :])
    return (TensorType(shape if len(shapes) == len(use.inputs) else None, promote(*use.inputs)),)


def stack(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type stack: all shapes agree, the new axis counts the operands."""
    shape = _agreed(use, _known_shapes(use), None)
    if shape is not None:
        axis = use.axis(shape, new=1)
        shape = (*shape[:axis], len(use.inputs), *shape[axis:])
    return (TensorType(shape, promote(*use.inputs)),)


def split(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type split: ``sections`` equal parts, or parts of the sizes listed there."""
    tensor, sections = use.tensor(0), use.options.integers("sections")
    equal = not isinstance(use.options.raw("sections"), list | tuple)
    count = sections[0] if equal else len(sections)
    if count < 1 or min(sections) < 1:
        raise use.wrong_option("sections", f"`sections: {use.options.raw('sections')}`", "numbers from 1 up")
    if tensor.shape is None:
        return (tensor,) * count
    axis = use.axis(tensor.shape)
    size = tensor.shape[axis] if tensor.shape else 1
    parts = _equal_parts(use, size, count) if equal else _listed_parts(use, size, sections)
    return tuple(TensorType(_replaced(tensor.shape, axis, part), tensor.dtype) for part in parts)


def cut(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type slice: the elements from start to stop, which may be negative as in Python."""
    tensor, start = use.tensor(0), use.options.integer("start")
    stop = use.options.integer("stop") if use.options.has("stop") else None
    if tensor.shape is None:
        return (tensor,)
    axis = use.axis(tensor.shape)
    size = _cut_size(tensor.shape[axis] if tensor.shape else 1, start, stop)
    if size == 0:
        found = f"no element from {start} to {'the end' if stop is None else stop} in {tensor}"
        raise use.wrong_option("start", found, "at least one element for `slice`")
    return (TensorType(_replaced(tensor.shape, axis, size), tensor.dtype),)


def _cut_size(size: Dimension, start: int, stop: int | None) -> Dimension:
    """Return the length of ``range(size)[start:stop]``."""
    if isinstance(size, int):
        return len(range(size)[start:stop])
    if start >= 0 and (stop is None or stop < 0):
        return add(size, (stop or 0) - start)
    surely = least(size)
    if stop is not None and 0 <= start < stop <= surely:
        return stop - start
    if stop is None and 0 < -start <= surely:
        return -start
    return f"{size}[{start}:{'' if stop is None else stop}]"


def _equal_parts(use: FunctionUse, size: Dimension, count: int) -> tuple[Dimension, ...]:
    if isinstance(size, int) and size % count:
        found = f"`sections: {count}` for {size} elements"
        raise use.wrong_option("sections", found, f"a divisor of {size}", "or list the size of every part")
    return (divide(size, count),) * count


def _listed_parts(use: FunctionUse, size: Dimension, sections: Sequence[int]) -> tuple[Dimension, ...]:
    if isinstance(size, int) and sum(sections) != size:
        found = f"`sections: {list(sections)}`, {sum(sections)} elements together"
        raise use.wrong_option("sections", found, f"{size} elements together")
    return tuple(sections)


def _replaced(shape: Shape, axis: int, size: Dimension) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _known_shapes(use: FunctionUse) -> list[tuple[int, Shape]]:
    return [(index, each.shape) for index, each in enumerate(use.tensors()) if each.shape is not None]


def _agreed(use: FunctionUse, shapes: Sequence[tuple[int, Shape]], free: int | None) -> Shape | None:
    """Return the common shape, numbers before names; the axis ``free`` may differ."""
    if not shapes:
        return None
    result = shapes[0][1]
    for index, shape in shapes[1:]:
        pairs = list(enumerate(zip(result, shape, strict=False)))
        if len(shape) != len(result) or any(is_surely_unequal(a, b) for axis, (a, b) in pairs if axis != free):
            but = "" if free is None else f" but for axis {free}"
            expected = f"the shape {format_shape(result)} of the operand before{but}"
            raise use.wrong_input(index, f"shape {format_shape(shape)}", expected)
        result = tuple(a if isinstance(a, int) else b for a, b in zip(result, shape, strict=True))
    return result


def _refuse_scalar(use: FunctionUse, index: int) -> int:
    raise use.wrong_input(index, "a value without axes", f"values with an axis to join along for `{use.name}`")
