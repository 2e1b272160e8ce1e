"""Shapes of functions along axes: sums, means, extremes and argmax, which take them away; softmax, cumsum, sort, ..."""

from __future__ import annotations

from compiler.ir.value import Shape
from compiler.types.call import FunctionUse
from compiler.types.dimension import TensorType
from compiler.types.dtype import is_not_floating


def extreme(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type max and min over axes."""
    return (TensorType(_reduced(use), use.tensor(0).dtype),)


def total(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type sum over axes: integers add up in int64."""
    dtype = use.tensor(0).dtype
    return (TensorType(_reduced(use), "int64" if is_not_floating(dtype) else dtype),)


def average(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type mean, norm and logsumexp over axes, which need floating elements."""
    use.require_floating(0)
    return (TensorType(_reduced(use), use.tensor(0).dtype),)


def rows(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type all_mean, a mean over axis 0."""
    use.require_floating(0)
    tensor = use.tensor(0)
    if tensor.shape == ():
        raise use.wrong_input(0, "a scalar", "a value with rows for `all_mean`")
    return (TensorType(None if tensor.shape is None else tensor.shape[1:], tensor.dtype),)


def argmax(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type argmax along one axis."""
    shape = use.tensor(0).shape
    if shape is not None:
        axis = use.axis(shape)
        shape = shape[:axis] + shape[axis + 1 :]
    return (TensorType(shape, "int64"),)


def accuracy(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type accuracy of scores [batch, classes, ...] against classes [batch, ...]."""
    scores, target = use.tensors()
    if scores.shape is not None and target.shape is not None and len(target.shape) != len(scores.shape) - 1:
        help = "targets are class numbers, one per sample; scores have one axis more, axis 1"
        raise use.wrong_input(1, f"a target {target} for scores {scores}", "a target with one axis less", help)
    return (TensorType((), "float32"),)


def along_axis(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type softmax, its logarithm and normalize: floating, an axis that exists, nothing changes."""
    use.require_floating(0)
    tensor = use.tensor(0)
    if tensor.shape is not None:
        use.axis(tensor.shape)
    return (tensor,)


def running(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type cumsum along an axis: integers add up in int64."""
    tensor = use.tensor(0)
    if tensor.shape is not None:
        use.axis(tensor.shape)
    return (TensorType(tensor.shape, "int64" if is_not_floating(tensor.dtype) else tensor.dtype),)


def ordered(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type sort and topk: the elements along an axis in order, of which topk keeps ``k``, and their indices."""
    tensor, shape = use.tensor(0), use.tensor(0).shape
    if tensor.dtype == "bool":
        help = "make a mask numbers with `where(mask, 1.0, 0.0)`"
        raise use.wrong_input(0, "a mask of dtype bool", f"numbers for `{use.name}`", help)
    if shape is not None:
        axis = use.axis(shape)
        if not shape:
            raise use.wrong_input(0, "a scalar", f"a value with axes for `{use.name}`")
        if use.name == "topk":
            size, k = shape[axis], use.options.integer("k")
            if isinstance(size, int) and k > size:
                raise use.wrong_option("k", f"`k: {k}` of {size} elements", f"at most {size}")
            shape = (*shape[:axis], k, *shape[axis + 1 :])
    return TensorType(shape, tensor.dtype), TensorType(shape, "int64")


def _reduced(use: FunctionUse) -> Shape | None:
    """Return the shape without the axes in ``axis`` (all, if none are given), or with 1 in their places."""
    shape = use.tensor(0).shape
    given = use.options.integers("axis") if use.options.has("axis") else None
    if shape is None:
        return () if given is None and not _keeps(use) else None
    axes = set(range(len(shape))) if given is None else {use.check_axis(axis, shape) for axis in given}
    if given is not None and len(axes) < len(given):
        raise use.wrong_option("axis", f"`axis: {list(given)}`", "every axis at most once")
    if _keeps(use):
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _keeps(use: FunctionUse) -> bool:
    """Return whether the axes stay, with size 1."""
    return use.options.raw("keepdims") is True
