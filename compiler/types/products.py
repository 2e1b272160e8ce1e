"""Shapes of products that sum over axes or pair them: matmul, outer, einsum."""

from __future__ import annotations

from compiler.ir.value import Dimension
from compiler.types.call import FunctionUse
from compiler.types.dimension import (
    TensorType,
    format_shape,
    is_surely_incompatible,
    is_surely_unequal,
    maximum,
)
from compiler.types.dtype import agree, promote
from graphspec.declare.equations import read_equation


def matmul(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type matmul: [..., n, k] @ [..., k, m]; a vector counts as one row on the left, one column on the right."""
    left, right = use.tensors()
    dtype = _require_one_dtype(use)
    if left.shape is None or right.shape is None:
        return (TensorType(None, dtype),)
    for index, shape in enumerate((left.shape, right.shape)):
        if not shape:
            raise use.wrong_input(index, "a scalar", "a vector or matrix for `matmul`")
    last, inner = left.shape[-1], right.shape[-2:][0]
    if is_surely_unequal(last, inner):
        shapes = f"shapes {format_shape(left.shape)} and {format_shape(right.shape)}"
        help = "transpose one factor with `permute`"
        raise use.wrong_input(1, f"{shapes}, inner sizes {last} and {inner}", "equal inner sizes for `matmul`", help)
    rows, columns = left.shape[-2:-1], right.shape[-1:] if len(right.shape) > 1 else ()
    fronts = left.shape[:-2], right.shape[:-2]
    longer, shorter = sorted(fronts, key=len, reverse=True)
    sizes = list[Dimension]()
    for a, b in zip(longer, (*(1,) * (len(longer) - len(shorter)), *shorter), strict=True):
        if is_surely_incompatible(a, b):
            found = f"leading axes {format_shape(fronts[0])} and {format_shape(fronts[1])}"
            raise use.wrong_input(1, found, "leading axes of `matmul` that broadcast")
        sizes.append(maximum(a, b))
    return (TensorType((*sizes, *rows, *columns), dtype),)


def outer(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type outer: two vectors [n] and [m] give [n, m]."""
    for index, tensor in enumerate(use.tensors()):
        if tensor.shape is not None and len(tensor.shape) != 1:
            help = "`einsum` says which axes of larger factors are multiplied"
            raise use.wrong_input(index, f"shape {format_shape(tensor.shape)}", "a vector for `outer`", help)
    left, right = (tensor.shape for tensor in use.tensors())
    return (TensorType(None if left is None or right is None else (*left, *right), _require_one_dtype(use)),)


def einsum(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type einsum: one letter is one size; sizes do not broadcast."""
    equation, sizes = read_equation(use.options.word("equation")), dict[str, Dimension]()
    if len(equation.factors) != len(use.inputs):
        found = f"{len(use.inputs)} factors for `{equation}`"
        raise use.wrong_option("equation", found, f"axes of {len(use.inputs)} factors, with commas between them")
    for index, (tensor, axes) in enumerate(zip(use.tensors(), equation.factors, strict=True)):
        if use.is_literal(index):
            raise use.wrong_input(index, "a number", f"a value with the axes `{axes}`", "multiply the result by it")
        if tensor.shape is None:
            continue
        if len(tensor.shape) != len(axes):
            raise use.wrong_input(index, f"shape {format_shape(tensor.shape)}", f"as many axes as in `{axes}`")
        for axis, size in zip(axes, tensor.shape, strict=True):
            before = sizes.setdefault(axis, size)
            if is_surely_unequal(before, size):
                found = f"size {size} of the axis `{axis}` in {format_shape(tensor.shape)}"
                raise use.wrong_input(index, found, f"{before}, as in a factor before it")
            sizes[axis] = before if isinstance(before, int) else size
    dtype, is_known = _require_one_dtype(use), sizes.keys() >= set(equation.result)
    return (TensorType(tuple(sizes[axis] for axis in equation.result) if is_known else None, dtype),)


def _require_one_dtype(use: FunctionUse) -> str | None:
    """Return the dtype of a product; factors of different dtypes are refused, as no framework multiplies them."""
    first, *others = use.tensors()
    for index, each in enumerate(others, 1):
        if first.dtype is not None and each.dtype is not None and not agree(each.dtype, first.dtype):
            expected = f"dtype {first.dtype}, as the first factor of `{use.name}` has"
            raise use.wrong_input(index, f"dtype {each.dtype}", expected)
    return promote(first, *others)
