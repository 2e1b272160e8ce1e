"""Shapes of functions that join, cut, pick or arrange elements: concat, split, gather, reshape, pad, ..."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.value import Dimension, Shape
from compiler.types.call import FunctionUse
from compiler.types.dimension import (
    Place,
    ShapeProblem,
    TensorType,
    add,
    divide,
    format_shape,
    is_surely_unequal,
    least,
    multiply,
    scale,
    total,
)
from compiler.types.dtype import agree, is_not_floating, promote
from graphspec.declare.options import BATCH
from graphspec.declare.subscripts import Slice


def fill_reshape(source: Shape, target: Sequence[Dimension], place: Place) -> Shape:
    """Return ``target`` with its -1 replaced; raise :class:`ShapeProblem` where the counts cannot agree."""
    if list(target).count(-1) > 1:
        raise ShapeProblem(place, f"`shape: {format_shape(tuple(target))}`", "-1 at most once")
    for size in target:
        if isinstance(size, int) and size < 1 and size != -1:
            raise ShapeProblem(place, f"`{size}` in `shape`", "sizes from 1 up, or one -1 for what is left")
    rest = multiply(size for size in target if size != -1)
    if -1 not in target:
        if is_surely_unequal(multiply(source), rest):
            raise _mismatch(source, target, f"{rest}", place)
        return tuple(target)
    left, right = list(source), [size for size in target if size != -1]
    for size in tuple(right):
        if isinstance(size, str) and size in left:  # common names cancel
            left.remove(size)
            right.remove(size)
    count, divisor = multiply(left), multiply(right)
    if isinstance(count, int) and isinstance(divisor, int) and count % divisor:
        raise _mismatch(source, target, f"a multiple of {rest}", place)
    open_size = f"({count})//({divisor})" if isinstance(divisor, str) else divide(count, divisor)
    return tuple(open_size if size == -1 else size for size in target)


def _mismatch(source: Shape, target: Sequence[Dimension], needed: str, place: Place) -> ShapeProblem:
    found = f"{multiply(source)} elements in {format_shape(source)}"
    expected = f"{needed} elements to fill {format_shape(tuple(target))}"
    return ShapeProblem(place, found, expected, "change `shape`, or the layers or ops before it")


def reshape(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type reshape: ``shape`` is the whole shape, the batch included; one size may be -1.

    `batch` in it is the size of the leading axis, which then has to be that of the batch.
    """
    tensor, target = use.tensor(0), use.options.sizes("shape")
    _require_batch(use, target)
    if tensor.shape is None:
        return (TensorType(None if -1 in target else target, tensor.dtype),)
    return (TensorType(fill_reshape(tensor.shape, target, ("args", "shape")), tensor.dtype),)


def expand(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type expand: ``shape`` has a size for every axis; -1 keeps it, any other is one that it has, or replaces 1."""
    tensor, target = use.tensor(0), use.options.sizes("shape")
    _require_batch(use, target)
    shape, whole = tensor.shape, format_shape(target)
    if any(isinstance(size, int) and size < 1 and size != -1 for size in target):
        raise use.wrong_option("shape", f"`shape: {whole}`", "sizes from 1 up, or -1 for those that stay")
    if shape is None:
        return (TensorType(None if -1 in target else target, tensor.dtype),)
    if len(target) != len(shape):
        help = "new axes are made by a subscript, as in `x[:, :, None, None]`"
        raise use.wrong_option("shape", f"`shape: {whole}`", f"a size for every axis of {format_shape(shape)}", help)
    for axis, (old, new) in enumerate(zip(shape, target, strict=True)):
        if new not in (-1, old) and isinstance(old, int) and old != 1:
            expected = f"{old} or -1 for axis {axis} of {format_shape(shape)}"
            raise use.wrong_option("shape", f"`{new}` in `shape`", expected, "axes of size 1 are repeated, no others")
    return (TensorType(tuple(old if new == -1 else new for old, new in zip(shape, target, strict=True)), tensor.dtype),)


def _require_batch(use: FunctionUse, target: Sequence[Dimension]) -> None:
    """Refuse `batch` in a shape for a value whose leading axis is not that of the batch."""
    tensor = use.tensor(0)
    if BATCH in target and tensor.shape is not None and tensor.shape[:1] != (BATCH,):
        expected = f"a value whose first axis is `{BATCH}`, as `shape: {format_shape(tuple(target))}` says"
        raise use.wrong_input(0, f"shape {tensor}", expected, "write -1 in its place")


def permute(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type permute: for every new axis, the old one."""
    tensor, dims = use.tensor(0), use.options.integers("dims")
    rank = len(dims)
    axes = [axis % rank for axis in dims if -rank <= axis < rank]
    if sorted(axes) != list(range(rank)) or (tensor.shape is not None and len(tensor.shape) != rank):
        expected = f"every axis of {tensor} once"
        raise use.wrong_option("dims", f"`dims: {list(dims)}`", expected, "for every new axis give the old one")
    return (TensorType(tensor.shape and tuple(tensor.shape[axis] for axis in axes), tensor.dtype),)


def one_hot(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type one_hot: a new last axis of ``classes``."""
    tensor, classes = use.tensor(0), use.options.integer("classes")
    _require_indices(use, 0)
    return (TensorType(None if tensor.shape is None else (*tensor.shape, classes), "float32"),)


def gather(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type gather: for every index, the element of ``x`` at that index of the axis.

    Indices of another rank, or with more rows than there are, are refused.
    """
    tensor, indices = use.tensors()
    _require_indices(use, 1)
    chosen = use.axis(tensor.shape) if tensor.shape is not None else 0
    if tensor.shape is not None and indices.shape is not None:
        found = f"indices of shape {format_shape(indices.shape)}"
        if len(indices.shape) != len(tensor.shape):
            help = "give the indices as many axes: `reshape` them to size 1 along the axis"
            raise use.wrong_input(1, found, f"as many axes as {format_shape(tensor.shape)}", help)
        for axis, (have, want) in enumerate(zip(tensor.shape, indices.shape, strict=True)):
            if axis != chosen and isinstance(have, int) and isinstance(want, int) and want > have:
                raise use.wrong_input(1, found, f"at most {have} along axis {axis}, as in {format_shape(tensor.shape)}")
    return (TensorType(indices.shape, tensor.dtype),)


def _require_indices(use: FunctionUse, index: int) -> None:
    """Refuse what cannot be indices."""
    dtype = use.tensor(index).dtype
    if dtype not in ("int64", "int32", "uint8", None):
        help = "declare the input it comes from with dtype int64"
        raise use.wrong_input(index, f"dtype {dtype}", f"indices of dtype int64 for `{use.name}`", help)


def concat(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type concat: sizes along the axis add up, the others agree."""
    shapes = _known_shapes(use)
    axes: list[int] = []
    for index, shape in shapes:
        if not shape:
            expected = f"values with an axis to join along for `{use.name}`"
            raise use.wrong_input(index, "a scalar", expected)
        axes.append(use.axis(shape))
    shape = _agreed(use, shapes, axes[0] if axes else None)
    if shape is not None and len(shapes) == len(use.inputs):
        axis = axes[0]
        shape = (*shape[:axis], total(each[axis] for _, each in shapes), *shape[axis + 1 :])
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
    if equal and isinstance(size, int) and size % count:
        found = f"`sections: {count}` for {size} elements"
        raise use.wrong_option("sections", found, f"a divisor of {size}", "or list the size of every part")
    if not equal and isinstance(size, int) and sum(sections) != size:
        found = f"`sections: {list(sections)}`, {sum(sections)} elements together"
        raise use.wrong_option("sections", found, f"{size} elements together")
    parts = (divide(size, count),) * count if equal else sections
    return tuple(TensorType(_replaced(tensor.shape, axis, part), tensor.dtype) for part in parts)


def split_rows(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type split_rows: ``count`` parts of the first axis, the larger ones first; a scalar has no rows."""
    tensor, count = use.tensor(0), use.options.integer("count")
    if tensor.shape is None:
        return (tensor,) * count
    if not tensor.shape:
        raise use.wrong_input(0, "a scalar", "a value with rows for `split_rows`")
    rows = tensor.shape[0]
    if isinstance(rows, int) and rows < count:
        raise use.wrong_option("count", f"`count: {count}` for {rows} rows", f"at most {rows}")
    sizes = (divide(add(rows, count - 1 - part), count) for part in range(count))
    return tuple(TensorType(_replaced(tensor.shape, 0, size), tensor.dtype) for size in sizes)


def either(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type either: all operands have one dtype, and shapes that agree."""
    first = use.tensor(0)
    for index, each in enumerate(use.tensors()):
        if first.dtype is not None and each.dtype is not None and not agree(each.dtype, first.dtype):
            raise use.wrong_input(index, f"dtype {each.dtype}", f"dtype {first.dtype}, as the first value has")
    shapes = _known_shapes(use)
    shape = _agreed(use, shapes, None)
    return (TensorType(shape if len(shapes) == len(use.inputs) else None, first.dtype),)


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


def subscript(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type subscript: an index removes its axis, a slice shortens it, None is a new one; the axes after it stay.

    Slices clamp as Python's; one that surely takes nothing is refused, as are an index outside a known size and more
    indices and slices than axes.
    """
    tensor, at = use.tensor(0), use.options.subscript("at")
    if tensor.shape is None:
        return (tensor,)
    if len(at.taken) > len(tensor.shape):
        found = f"{len(at.taken)} indices and slices in `{at}`"
        raise use.wrong_option("at", found, f"at most {len(tensor.shape)}, as {tensor} has axes")
    shape, axis = list[Dimension](), 0
    for place in at.places:
        if place is None:
            shape.append(1)
            continue
        size = tensor.shape[axis]
        if isinstance(place, Slice):
            length = size if place == Slice() else _cut_size(size, place.start, place.stop)
            if length == 0:
                found = f"no element in `{place}` along axis {axis} of {tensor}"
                raise use.wrong_option("at", found, "at least one element for `subscript`")
            shape.append(length if place.step == 1 else divide(add(length, place.step - 1), place.step))
        elif isinstance(size, int) and not -size <= place < size:
            found = f"the index {place} for {size} elements along axis {axis} of {tensor}"
            raise use.wrong_option("at", found, f"an index from {-size} to {size - 1}")
        axis += 1
    return (TensorType((*shape, *tensor.shape[axis:]), tensor.dtype),)


def roll(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type roll: an axis that exists, nothing changes."""
    tensor = use.tensor(0)
    if tensor.shape is not None:
        use.axis(tensor.shape)
    return (tensor,)


def gathered(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type all_gather: rows, which are all there are in a shape."""
    tensor = use.tensor(0)
    if tensor.shape == ():
        raise use.wrong_input(0, "a scalar", "a value with rows for `all_gather`")
    return (tensor,)


def pad(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type pad: two numbers for each of the last axes, the last one first.

    Mirrors and edges are for floating numbers, along one to three axes with one or two before them, as in PyTorch.
    """
    tensor, added, method = use.tensor(0), use.options.integers("pad"), use.options.word("method")
    count, found = len(added) // 2, f"`pad: {list(added)}` for {tensor}"
    if len(added) % 2:
        expected = "two numbers for each axis: before and after it, the last axis first"
        raise use.wrong_option("pad", found, expected, "as in `pad: [1, 1]`")
    value = use.options.number("value")
    if method != "constant":
        use.require_floating(0)
    if method != "constant" and value:
        raise use.wrong_option(
            "value", f"`value: {value}` with `method: {method}`", "no `value`, which `constant` adds"
        )
    if is_not_floating(tensor.dtype) and int(value) != value:
        raise use.wrong_option("value", f"`value: {value}` for {tensor}", "a whole number for whole numbers")
    if tensor.shape is None:
        return (tensor,)
    rank = len(tensor.shape)
    if method == "constant" and count > rank:
        raise use.wrong_option("pad", found, f"numbers for at most {rank} axes")
    if method != "constant" and (count > 3 or rank - count not in (1, 2)):
        help = "give an axis that stays two zeros, or `reshape` before"
        raise use.wrong_option(
            "pad", found, f"one to three axes, with one or two before them, for `method: {method}`", help
        )
    shape = list(tensor.shape)
    for index, both in enumerate(zip(added[::2], added[1::2], strict=True)):
        size = shape[-1 - index]
        if method == "reflect" and isinstance(size, int) and max(both) >= size:
            raise use.wrong_option("pad", found, f"less than {size}, the size of the axis, for a mirror image")
        shape[-1 - index] = add(size, sum(both))
    return (TensorType(tuple(shape), tensor.dtype),)


def interpolate(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type interpolate: images [batch, channels, height, width] of a new height and width, or both times a factor."""
    use.require_floating(0)
    tensor = use.tensor(0)
    if use.options.has("size") == use.options.has("factor"):
        found = "both `size` and `factor`" if use.options.has("size") else "neither `size` nor `factor`"
        raise use.wrong_option("size", found, "one of them for `interpolate`")
    if tensor.shape is not None and len(tensor.shape) != 4:
        expected = "[batch, channels, height, width] for `interpolate`"
        raise use.wrong_input(0, f"shape {format_shape(tensor.shape)}", expected, "add `reshape`")
    if tensor.shape is None:
        return (tensor,)
    if use.options.has("size"):
        return (TensorType((*tensor.shape[:2], *use.options.pair("size")), tensor.dtype),)
    factor = use.options.integer("factor")
    return (TensorType((*tensor.shape[:2], *(scale(size, factor) for size in tensor.shape[2:])), tensor.dtype),)


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


def window_count(size: Dimension, *, kernel: int, stride: int, padding: int, dilation: int = 1) -> Dimension:
    """Return how many windows fit: floor((size + 2*padding - dilation*(kernel-1) - 1) / stride) + 1."""
    return divide(add(size, 2 * padding - dilation * (kernel - 1) - 1 + stride), stride)


def transposed_size(size: Dimension, *, kernel: int, stride: int, padding: int, extra: int) -> Dimension:
    """Return the size whose windows are ``size``: (size - 1)*stride - 2*padding + kernel + extra."""
    return add(scale(size, stride), kernel + extra - stride - 2 * padding)
