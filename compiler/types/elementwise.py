"""Shapes and dtypes of elementwise functions: arithmetic, powers, the lesser and the greater, comparisons, masks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from compiler.ir.value import Constant, Dimension, Shape
from compiler.types.call import FunctionUse
from compiler.types.dimension import TensorType, format_shape, is_surely_incompatible, maximum
from compiler.types.dtype import as_float, is_not_floating, promote


def is_broadcast(shapes: Sequence[Shape], result: Shape) -> bool:
    """Return whether a shape is what others broadcast to, and none of them."""
    whole: Shape = ()
    for shape in shapes:
        pairs = zip_longest(reversed(whole), reversed(shape), fillvalue=1)
        whole = tuple(reversed([maximum(left, right) for left, right in pairs]))
    return whole == result and result not in shapes


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
    """Type add, mul, lerp: shapes broadcast, dtypes are promoted."""
    return (TensorType(broadcast(use), promote(*use.inputs)),)


def difference(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type sub and neg: as arithmetic, but masks, of which PyTorch subtracts none, are refused."""
    for index, tensor in enumerate(use.tensors()):
        if tensor.dtype == "bool":
            help = "1 - x of a mask is `{call: logical_not, inputs: x}`"
            raise use.wrong_input(index, "a mask of dtype bool", f"numbers for `{use.name}`", help)
    return arithmetic(use)


def quotient(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type div, which is floating for integers too."""
    return (TensorType(broadcast(use), as_float(promote(*use.inputs))),)


def kept(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type abs, sign, square, relu, stop: nothing changes."""
    return (use.tensor(0),)


def real(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type sqrt, exp, log, sigmoid, tanh, which are floating for integers too."""
    tensor = use.tensor(0)
    return (TensorType(tensor.shape, as_float(tensor.dtype)),)


def floating(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type softplus, which needs floating elements: nothing changes."""
    use.require_floating(0)
    return (use.tensor(0),)


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


def power(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type pow: dtypes are promoted; whole numbers stay whole, to a power that is a number in the spec, from 0 up.

    Any other power of whole numbers may be a fraction and is refused: frameworks round it, or fail in the step.
    """
    dtype, exponent = promote(*use.inputs), use.inputs[1]
    is_counted = isinstance(exponent, Constant) and exponent.value >= 0 and dtype != "bool"
    if is_not_floating(dtype) and not is_counted:
        found = f"the exponent {exponent.value}" if isinstance(exponent, Constant) else f"an exponent {exponent}"
        expected = f"a number from 0 up, for a power of {use.tensor(0)}"
        help = "make one of the two floating-point: multiply it by 1.0 before"
        raise use.wrong_input(1, found, expected, help)
    return (TensorType(broadcast(use), dtype),)


def extreme(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type minimum and maximum: as arithmetic, but not of two masks, which have no order."""
    return (TensorType(broadcast(use), _require_order(use)),)


def equality(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type equal and not_equal: shapes broadcast, of any dtypes; the result is a mask."""
    return (TensorType(broadcast(use), "bool"),)


def comparison(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type less, greater, ...: as equality, but not of two masks, which have no order."""
    _require_order(use)
    return equality(use)


def _require_order(use: FunctionUse) -> str | None:
    """Return the dtype in which two operands are compared; refuse masks."""
    dtype = promote(*use.inputs)
    if dtype == "bool":
        help = "for masks there are `logical_and`, `logical_or`, `logical_not` and `equal`"
        raise use.wrong_input(0, "two operands of dtype bool", f"numbers for `{use.name}`", help)
    return dtype


def logic(use: FunctionUse) -> tuple[TensorType, ...]:
    """Type logical_and, logical_or, logical_not: masks alone, whose shapes broadcast."""
    for index, tensor in enumerate(use.tensors()):
        if tensor.dtype not in ("bool", None):
            help = "compare it first: `{call: greater, inputs: [x, 0]}` is a mask"
            raise use.wrong_input(index, f"dtype {tensor.dtype}", f"a mask of dtype bool for `{use.name}`", help)
    return (TensorType(broadcast(use), "bool"),)
