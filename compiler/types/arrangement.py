"""Shapes of functions that pick or arrange elements: gather, reshape, permute, one_hot; and of matmul."""

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
    is_surely_incompatible,
    is_surely_unequal,
    maximum,
    multiply,
    scale,
)
from compiler.types.dtype import agree, promote
from graphspec.declare.options import BATCH


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


def reshape(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type reshape: ``shape`` is the whole shape, the batch included; one size may be -1.

    `batch` in it is the size of the leading axis, which then has to be that of the batch.
    """
    tensor, target = use.tensor(0), use.options.sizes("shape")
    if BATCH in target and tensor.shape is not None and tensor.shape[:1] != (BATCH,):
        expected = f"a value whose first axis is `{BATCH}`, as `shape: {format_shape(target)}` says"
        raise use.wrong_input(0, f"shape {tensor}", expected, "write -1 in its place")
    if tensor.shape is None:
        return (TensorType(None if -1 in target else target, tensor.dtype),)
    return (TensorType(fill_reshape(tensor.shape, target, ("args", "shape")), tensor.dtype),)


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
    """Type gather: for every index, the element of ``x`` at that index of the axis."""
    tensor, indices = use.tensors()
    _require_indices(use, 1)
    if tensor.shape is not None:
        axis = use.axis(tensor.shape)
        _check_gather(use, tensor.shape, indices.shape, axis)
    return (TensorType(indices.shape, tensor.dtype),)


def _check_gather(use: FunctionUse, source: Shape, indices: Shape | None, axis: int) -> None:
    """Refuse indices of another rank, or with more rows than there are."""
    if indices is None:
        return
    if len(indices) != len(source):
        help = "give the indices as many axes: `reshape` them to size 1 along the axis"
        expected = f"as many axes as {format_shape(source)}"
        raise use.wrong_input(1, f"indices of shape {format_shape(indices)}", expected, help)
    for position, (have, want) in enumerate(zip(source, indices, strict=True)):
        if position != axis and isinstance(have, int) and isinstance(want, int) and want > have:
            expected = f"at most {have} along axis {position}, as in {format_shape(source)}"
            raise use.wrong_input(1, f"indices of shape {format_shape(indices)}", expected)


def _require_indices(use: FunctionUse, index: int) -> None:
    """Refuse what cannot be indices."""
    dtype = use.tensor(index).dtype
    if dtype not in ("int64", "int32", "uint8", None):
        help = "declare the input it comes from with dtype int64"
        raise use.wrong_input(index, f"dtype {dtype}", f"indices of dtype int64 for `{use.name}`", help)


def matmul(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type matmul: [..., n, k] @ [..., k, m]; a vector counts as one row on the left, one column on the right."""
    left, right = use.tensors()
    _check_same_dtype(use, left, right)
    dtype = promote(left, right)
    if left.shape is None or right.shape is None:
        return (TensorType(None, dtype),)
    for index, shape in enumerate((left.shape, right.shape)):
        if not shape:
            raise use.wrong_input(index, "a value without axes", "a vector or matrix for `matmul`")
    _check_inner(use, left.shape, right.shape)
    rows, columns = left.shape[-2:-1], right.shape[-1:] if len(right.shape) > 1 else ()
    return (TensorType((*_leading(use, left.shape[:-2], right.shape[:-2]), *rows, *columns), dtype),)


def _check_same_dtype(use: FunctionUse, left: TensorType, right: TensorType) -> None:
    """Refuse factors of different dtypes: no framework multiplies them."""
    if left.dtype is not None and right.dtype is not None and not agree(right.dtype, left.dtype):
        raise use.wrong_input(1, f"dtype {right.dtype}", f"dtype {left.dtype}, as the first factor of `matmul` has")


def _check_inner(use: FunctionUse, left: Shape, right: Shape) -> None:
    """Refuse inner sizes that surely differ."""
    inner = right[-2:][0]
    if is_surely_unequal(left[-1], inner):
        found = f"shapes {format_shape(left)} and {format_shape(right)}, inner sizes {left[-1]} and {inner}"
        raise use.wrong_input(1, found, "equal inner sizes for `matmul`", "transpose one factor with `permute`")


def _leading(use: FunctionUse, left: Shape, right: Shape) -> Shape:
    """Broadcast the axes before the matrices."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    padded = (*(1,) * (len(longer) - len(shorter)), *shorter)
    sizes = list[Dimension]()
    for a, b in zip(longer, padded, strict=True):
        if is_surely_incompatible(a, b):
            found = f"leading axes {format_shape(left)} and {format_shape(right)}"
            raise use.wrong_input(1, found, "leading axes of `matmul` that broadcast")
        sizes.append(maximum(a, b))
    return tuple(sizes)


def window_count(size: Dimension, *, kernel: int, stride: int, padding: int, dilation: int = 1) -> Dimension:
    """Return how many windows fit: floor((size + 2*padding - dilation*(kernel-1) - 1) / stride) + 1."""
    return divide(add(size, 2 * padding - dilation * (kernel - 1) - 1 + stride), stride)


def transposed_size(size: Dimension, *, kernel: int, stride: int, padding: int, extra: int) -> Dimension:
    """Return the size whose windows are ``size``: (size - 1)*stride - 2*padding + kernel + extra."""
    return add(scale(size, stride), kernel + extra - stride - 2 * padding)
