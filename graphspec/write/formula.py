"""Write ops as the expression that they are made of: the opposite of :mod:`graphspec.expand.formulas`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce
from typing import TypeAlias, cast

from msgspec import Struct

from graphspec.declare.subscripts import read_subscript
from graphspec.expand.formulas import OPERATORS, SIGNS

Operand: TypeAlias = "Called | str | bool | int | float"


class Called(Struct, frozen=True, kw_only=True):
    """A function of the library on its operands: names, numbers, and other calls."""

    function: str
    operands: tuple[Operand, ...]
    options: Mapping[str, object] = {}


_BINARY: Mapping[str, ast.operator] = {
    "+": ast.Add(),
    "-": ast.Sub(),
    "*": ast.Mult(),
    "/": ast.Div(),
    "**": ast.Pow(),
    "@": ast.MatMult(),
    "&": ast.BitAnd(),
    "|": ast.BitOr(),
}
_COMPARED: Mapping[str, ast.cmpop] = {
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
    "==": ast.Eq(),
    "!=": ast.NotEq(),
}
_SIGNS: Mapping[str, ast.unaryop] = {"-": ast.USub(), "~": ast.Invert()}
_OPERATORS = {call: operator for operator, call in OPERATORS.items()}
_BEFORE = {call: operator for operator, call in SIGNS.items()}


def write_formula(formula: Operand) -> str:
    """Return a call, or a lone operand, as an expression, with the brackets that it needs.

    >>> write_formula(Called(function="mul", operands=(0.5, Called(function="sub", operands=("a", "b")))))
    '0.5 * (a - b)'
    """
    return ast.unparse(_build(formula))


def _build(operand: Operand) -> ast.expr:
    """Return the syntax tree of an operand; a call is written as an operator where there is one for it."""
    if isinstance(operand, str):
        return ast.Name(id=operand)  # with its dots, and as `unparse` writes it
    if isinstance(operand, bool):
        return ast.Constant(value=operand)
    if isinstance(operand, int | float):
        return _literal(operand)
    operands = [_build(each) for each in operand.operands]
    operator, sign = _OPERATORS.get(operand.function, ""), _BEFORE.get(operand.function, "")
    if operator in _BINARY and len(operands) > 1:
        return reduce(lambda left, right: ast.BinOp(left=left, op=_BINARY[operator], right=right), operands)
    if operator in _COMPARED and len(operands) == 2:
        return ast.Compare(left=operands[0], ops=[_COMPARED[operator]], comparators=[operands[1]])
    if sign and len(operands) == 1:
        return ast.UnaryOp(op=_SIGNS[sign], operand=operands[0])
    if operand.function == "subscript" and len(operands) == 1:
        at = operand.options["at"]
        at = read_subscript(at) if isinstance(at, str | int) else at
        return ast.Subscript(value=operands[0], slice=ast.Name(id=str(at).strip("[]")))
    keywords = [ast.keyword(arg=name, value=_literal(value)) for name, value in operand.options.items()]
    return ast.Call(func=ast.Name(id=operand.function), args=operands, keywords=keywords)


def _literal(value: object) -> ast.expr:
    """Return a constant; a negative number as Python reads it, so that it gets brackets before a power."""
    match value:
        case bool() | None | str():
            return ast.Constant(value=value)
        case int() | float() if value < 0:
            return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
        case int() | float():
            return ast.Constant(value=value)
        case list() | tuple():
            return ast.List(elts=[_literal(each) for each in cast("list[object]", value)])
        case _:
            return ast.Name(id=str(value))  # a number that follows a schedule, by its name
