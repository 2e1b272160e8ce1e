"""Expressions of numbers: Python's grammar, read into nodes of our own from a closed list; Python evaluates nothing.

Every node knows the characters that it was read from, so that a message can point at them.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

LONGEST = 2_000
"""Characters of an expression."""
DEEPEST = 100
"""Operations and calls of an expression inside each other."""
MOST_BITS = 64
"""Bits of a whole number that an expression gives."""
TOO_MANY_BITS, WITH_A_POINT = (
    f"this is a whole number of more than {MOST_BITS} bits",
    "write a decimal point: `2.0**100`",
)
WRITE = "write it as in Python: `0.7 * temperature**2`"

Scalar: TypeAlias = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of an expression: the characters from ``start`` up to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Node):
    """A number."""

    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    """A name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative(Node):
    """A part with a minus before it."""

    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """An operator between two parts."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A call of a function by its name."""

    function: Name
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Number | Name | Negative | Binary | Call
OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}


def _abs(number: Scalar, /) -> Scalar:
    return abs(number)


def _max(*numbers: Scalar) -> Scalar:
    return max(numbers)


def _min(*numbers: Scalar) -> Scalar:
    return min(numbers)


FUNCTIONS: Mapping[str, Callable[..., Scalar]] = {
    "abs": _abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": _max,
    "min": _min,
    "sin": math.sin,
    "sqrt": math.sqrt,
}
"""The functions of one number, and ``max`` and ``min`` of several."""
OF_SEVERAL = frozenset({"max", "min"})
CONSTANTS: Mapping[str, float] = {"pi": math.pi}


class ExpressionError(ValueError):
    """An expression that cannot be read, or has no value: why, at which characters, and what to write instead."""

    def __init__(self, message: str, start: int, end: int, help: str = WRITE) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.help = message, start, end, help


def read_expression(text: str) -> Expression:
    """Return what a text says; line breaks are spaces. Raises ExpressionError for what is no expression."""
    if len(text) > LONGEST:
        message = f"an expression has at most {LONGEST:,} characters, this one has {len(text):,}"
        raise ExpressionError(message, 0, len(text), "give a part of it a name of its own")
    # On one line and without indentation, so that it is read as if it stood in brackets.
    line = "".join(" " if each.isspace() else each for each in text)
    shift = len(line) - len(line.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python warns of is refused below
            tree = ast.parse(line.strip(), mode="eval").body
    except SyntaxError as error:
        at = min(shift + max((error.offset or 1) - 1, 0), max(len(text) - 1, 0))
        raise ExpressionError("this is not an expression", at, at + 1) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("this is not an expression that can be read", 0, len(text)) from None
    return _Reader(line.strip().encode(), shift).read(tree, 0)


class _Reader:
    """Turns Python's nodes into ours; Python counts columns in bytes of the line."""

    def __init__(self, line: bytes, shift: int) -> None:
        self._line = line
        self._shift = shift

    def read(self, node: ast.expr, depth: int) -> Expression:
        """Return a node of ours; raise ExpressionError for one that is not in the list."""
        start, end = self._column(node.col_offset), self._column(node.end_col_offset or 0)
        if depth == DEEPEST:
            message = f"an expression nests at most {DEEPEST} deep"
            raise ExpressionError(message, start, end, "give a part of it a name of its own")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Number(start=start, end=end, value=value)
            case ast.Name(id=name) if name.isascii():
                return Name(start=start, end=end, name=name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Negative(start=start, end=end, operand=self.read(operand, depth + 1))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand, depth + 1)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
                first, second = self.read(left, depth + 1), self.read(right, depth + 1)
                return Binary(start=start, end=end, operator=OPERATORS[type(op)], left=first, right=second)
            case ast.Call(func=ast.Name() as function, args=arguments, keywords=[]):
                name = Name(start=start, end=self._column(function.end_col_offset or 0), name=function.id)
                given = tuple(self.read(each, depth + 1) for each in arguments)
                return Call(start=start, end=end, function=name, arguments=given)
            case _:
                message = f"an expression has numbers, variables, + - * / // % **, and calls: no {_name_kind(node)}"
                raise ExpressionError(message, start, end)

    def _column(self, offset: int) -> int:
        return self._shift + len(self._line[:offset].decode())


def _name_kind(node: ast.expr) -> str:
    """Return what a node is called that is not in the list."""
    match node:
        case ast.Constant(value=str() | bytes()):
            return "text"
        case ast.Constant():
            return "such constant"
        case ast.Compare() | ast.BoolOp():
            return "comparison"
        case ast.Attribute():
            return "dot"
        case ast.Subscript():
            return "subscript"
        case _:
            return "such operation"


def find_names(expression: Expression) -> Iterator[Name]:
    """Yield the names of values in an expression, from left to right; constants and functions are none."""
    match expression:
        case Name():
            if expression.name not in CONSTANTS:
                yield expression
        case Negative():
            yield from find_names(expression.operand)
        case Binary():
            yield from find_names(expression.left)
            yield from find_names(expression.right)
        case Call():
            for each in expression.arguments:
                yield from find_names(each)
        case Number():
            pass


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
        case Negative():
            found = -evaluate(expression.operand, values)
        case Binary():
            found = _calculate(expression, evaluate(expression.left, values), evaluate(expression.right, values))
        case Call():
            found = _call(expression, [evaluate(each, values) for each in expression.arguments])
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        raise ExpressionError(TOO_MANY_BITS, expression.start, expression.end, WITH_A_POINT)
    if not math.isfinite(found):
        raise ExpressionError("this is not a finite number", expression.start, expression.end, "choose other numbers")
    return found


def _operate(operator: str, left: Scalar, right: Scalar) -> Scalar | complex:
    """Return what Python makes of an operator."""
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return left // right
        case "%":
            return left % right
        case _:
            return left**right


def _has_too_many_bits(left: int, right: int) -> bool:
    return (abs(left).bit_length() - 1) * right > MOST_BITS


def _calculate(expression: Binary, left: Scalar, right: Scalar) -> Scalar:
    """Return the result of an operator."""
    start, end, help = expression.start, expression.end, "choose other numbers"
    # A power of whole numbers can take all memory there is: one that is too large for certain is not calculated.
    is_power = expression.operator == "**"
    if is_power and isinstance(left, int) and isinstance(right, int) and _has_too_many_bits(left, right):
        raise ExpressionError(TOO_MANY_BITS, start, end, WITH_A_POINT)
    try:
        found = _operate(expression.operator, left, right)
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
