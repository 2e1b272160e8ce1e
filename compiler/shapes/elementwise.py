"""Shapes of functions that act on every element alone."""

from __future__ import annotations

from compiler.operands import Constant
from compiler.shapes.broadcasting import broadcast
from compiler.shapes.dtype import as_float, promote
from compiler.shapes.function_use import FunctionUse
from compiler.shapes.tensor_type import TensorType


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
