"""Shapes of functions that pick or arrange elements: gather, reshape, permute, one_hot; and of matmul."""

from __future__ import annotations

from compiler.operands import Dimension, Shape
from compiler.shapes.dimension import is_surely_incompatible, is_surely_unequal, maximum
from compiler.shapes.dtype import agree, promote
from compiler.shapes.function_use import FunctionUse
from compiler.shapes.reshaping import fill_reshape
from compiler.shapes.tensor_type import TensorType, format_shape
from graphspec.options import BATCH


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
