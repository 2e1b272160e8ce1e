"""Shapes of functions that take axes away: sums, means, extremes, lengths, argmax."""

from __future__ import annotations

from itertools import zip_longest

from compiler.ir.value import Constant, Dimension, Shape
from compiler.types.call import FunctionUse
from compiler.types.dimension import TensorType, format_shape, is_surely_incompatible, maximum
from compiler.types.dtype import as_float, is_not_floating, promote


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


def broadcast(use: FunctionUse) -> Shape | None:
    """Return the shape of an elementwise result; None where an operand's is unknown.

    Raises :class:`ShapeProblem` for an operand that surely does not broadcast with those before it.
    """
    result: Shape = ()
    shapes = [tensor.shape for tensor in use.tensors()]
    for index, shape in enumerate(shapes):
        if shape is None:
            continue
        sizes = list[Dimension]()
        for a, b in zip_longest(reversed(result), reversed(shape), fillvalue=1):
            if is_surely_incompatible(a, b):
                expected = f"a shape that `{use.name}` can broadcast with {format_shape(result)}"
                help = "sizes are matched from the last axis; each pair must be equal, or one of them 1"
                raise use.wrong_input(index, f"shape {format_shape(shape)}", expected, help)
            sizes.append(maximum(a, b))
        result = tuple(reversed(sizes))
    return None if None in shapes else result


def arithmetic(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type add, sub, mul, lerp: shapes broadcast, dtypes are promoted."""
    return (TensorType(broadcast(use), promote(*use.inputs)),)


def quotient(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type div, which is floating for integers too."""
    return (TensorType(broadcast(use), as_float(promote(*use.inputs))),)


def kept(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type neg, abs, sign, square, relu, stop: nothing changes."""
    return (use.tensor(0),)


def real(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type sqrt, exp, log, sigmoid, tanh, which are floating for integers too."""
    tensor = use.tensor(0)
    return (TensorType(tensor.shape, as_float(tensor.dtype)),)


def clip(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type clip: a floating limit makes integers floating."""
    limits = [Constant(value=use.options.number(name)) for name in ("min", "max") if use.options.has(name)]
    if not limits:
        raise use.wrong_option("min", "neither `min` nor `max`", "at least one limit for `clip`")
    return (TensorType(use.tensor(0).shape, promote(use.inputs[0], *limits)),)


def where(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type where: the condition is boolean and broadcasts with the other two."""
    dtype = use.tensor(0).dtype
    if dtype not in ("bool", None):
        help = "declare its input with dtype bool; to mix by a mask of 0 and 1, use `lerp` with the mask as weight"
        raise use.wrong_input(0, f"a condition of dtype {dtype}", "a condition of dtype bool for `where`", help)
    return (TensorType(broadcast(use), promote(*use.inputs[1:])),)


def along_axis(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type softmax and normalize: floating, an axis that exists, nothing changes."""
    use.require_floating(0)
    tensor = use.tensor(0)
    if tensor.shape is not None:
        use.axis(tensor.shape)
    return (tensor,)
