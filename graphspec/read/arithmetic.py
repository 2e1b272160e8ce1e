"""What expressions of numbers come to, as Python calculates them, within limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from graphspec.read.expressions import (
    CONSTANTS,
    NUMBERS,
    Binary,
    Call,
    Expression,
    ExpressionError,
    Name,
    Number,
    Scalar,
    Unary,
)
from graphspec.read.misreadings import Signatures

MOST_BITS = 64
"""Bits of a whole number that an expression gives."""
TOO_MANY_BITS, WITH_A_POINT = (
    f"this is a whole number of more than {MOST_BITS} bits",
    "write a decimal point: `2.0**100`",
)


def _abs(number: Scalar, /) -> Scalar:
    """Return the absolute value, which is a number: the type of `abs` leaves open what it gives."""
    return abs(number)


FUNCTIONS: Mapping[str, Callable[..., Scalar]] = {
    "abs": _abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": max,
    "min": min,
    "sin": math.sin,
    "sqrt": math.sqrt,
}
"""The functions of one number, and ``max`` and ``min`` of several."""
OF_SEVERAL = frozenset({"max", "min"})
SIGNATURES: Signatures = {name: (0 if name in OF_SEVERAL else 1, ()) for name in FUNCTIONS}
"""How they are called, for messages."""
_OPERATORS: Mapping[str, Callable[[Scalar, Scalar], Scalar | complex]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
    "**": lambda left, right: left**right,
}
"""What Python makes of them: a power may be complex."""


def evaluate(expression: Expression, values: Mapping[str, Scalar]) -> Scalar:
    """Return the value of an expression whose names all have one, as Python gives it.

    Raises ExpressionError for an unknown function, a division by zero, and a result that is not a finite real number
    or a whole one of more than 64 bits.
    """
    match expression:
        case Number():
            found = expression.value
        case Name():
            found = values[expression.name] if expression.name in values else CONSTANTS[expression.name]
        case Unary(operator="-"):
            found = -evaluate(expression.operand, values)
        case Binary():
            found = _calculate(expression, evaluate(expression.left, values), evaluate(expression.right, values))
        case Call():
            found = _call(expression, [evaluate(each, values) for each in expression.arguments])
        case _:
            raise ExpressionError("this has no value as a number", expression.start, expression.end, NUMBERS.help)
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        raise ExpressionError(TOO_MANY_BITS, expression.start, expression.end, WITH_A_POINT)
    if not math.isfinite(found):
        raise ExpressionError("this is not a finite number", expression.start, expression.end, "choose other numbers")
    return found


def _calculate(expression: Binary, left: Scalar, right: Scalar) -> Scalar:
    """Return the result of an operator."""
    start, end, help = expression.start, expression.end, "choose other numbers"
    # A power of whole numbers can take all memory there is: one that is too large for certain is not calculated.
    bits = (abs(left).bit_length() - 1) * right if isinstance(left, int) and isinstance(right, int) else 0
    if expression.operator == "**" and bits > MOST_BITS:
        raise ExpressionError(TOO_MANY_BITS, start, end, WITH_A_POINT)
    try:
        found = _OPERATORS[expression.operator](left, right)
    except ZeroDivisionError:
        raise ExpressionError("this divides by zero", start, end, help) from None
    except OverflowError:
        raise ExpressionError("this is too large a number", start, end, help) from None
    if isinstance(found, complex):
        raise ExpressionError("this power is not a real number", start, end, help)
    return found


def _call(expression: Call, arguments: list[Scalar]) -> Scalar:
    """Return the result of a function."""
    name = expression.function.name
    function = FUNCTIONS.get(name)
    if function is None:
        start, end = expression.function.start, expression.function.end
        raise ExpressionError(
            f"there is no function '{name}' of numbers", start, end, f"there are {', '.join(FUNCTIONS)}"
        )
    is_fitting = len(arguments) > 1 if name in OF_SEVERAL else len(arguments) == 1
    if not is_fitting:
        wanted, help = (
            ("several numbers", f"write `{name}(a, b)`") if name in OF_SEVERAL else ("one number", f"write `{name}(a)`")
        )
        raise ExpressionError(f"'{name}' takes {wanted}", expression.start, expression.end, help)
    try:
        return function(*arguments)
    except (ValueError, OverflowError):
        message = f"'{name}' has no value there"
        raise ExpressionError(message, expression.start, expression.end, "choose other numbers") from None
