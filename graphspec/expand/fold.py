"""Parts of expressions that are made of numbers alone become numbers, once variables are replaced."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from msgspec.structs import replace

from graphspec.diagnostics import Diagnostic
from graphspec.expand.formulas import OPERATORS, stand_in
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.arithmetic import FUNCTIONS, evaluate
from graphspec.read.expressions import Binary, Call, Expression, ExpressionError, Name, Number, Scalar, Unary
from graphspec.read.source import Document, Plain

ARITHMETIC: Mapping[str, str] = {
    call: operator for operator, call in OPERATORS.items() if operator in {"+", "-", "*", "/", "**"}
}
"""The operators of numbers, by their calls."""
NUMERIC: Mapping[str, str] = {"minimum": "min", "maximum": "max"}
"""What calls of two values are for numbers."""


def fold_numbers(document: Document) -> tuple[Document, tuple[Diagnostic, ...]]:
    """Return a document in which the parts of expressions that are made of numbers alone are numbers; and the problems.

    These are parts without a value, and expressions that come to a number, which are set aside.
    """
    data = document.data
    ops = data.get("ops") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(ops, dict):
        return document, ()
    found: dict[str, Plain] = {}
    numbers: dict[str, Scalar] = {}
    problems: dict[str, Diagnostic] = {}
    for name, op in ops.items():
        written = op.get("inputs") if isinstance(op, dict) and "expr" in op else None
        if not isinstance(op, dict) or not isinstance(written, list):
            found[name] = op
            continue
        used = {each for each in written if isinstance(each, str) and each in numbers}
        inputs: list[Plain] = [numbers[each] if isinstance(each, str) and each in used else each for each in written]
        for each in used & problems.keys():  # what is made of numbers is no expression of its own
            del problems[each]
        found[name] = {**op, "inputs": inputs}
        node = _read_function(op, inputs)
        if node is None:
            continue
        try:
            numbers[name], message = evaluate(node, {}), "this comes to a number, and reads no value"
            help = "write the number where it is read, or a variable: `${= 0.7 * temperature**2}`"
            found.pop(name)
        except ExpressionError as error:
            message, help = error.message, error.help
        span = document.value_span(("ops", name, "inputs"))
        problems[name] = Diagnostic(code="GS068", message=message, span=span, help=help)
    for name in problems:
        op = ops[name]
        assert isinstance(op, dict)
        found[name] = stand_in(op)
    changed = replace(document, data={**data, "ops": found}) if numbers or problems else document
    return changed, tuple(problems.values())[:MOST_PROBLEMS]


def _read_function(op: Mapping[str, Plain], inputs: list[Plain]) -> Expression | None:
    """Return what a call calculates from numbers alone; None where it is another call."""
    function = op.get("call")
    operands = [
        Number(start=0, end=0, value=each)
        for each in inputs
        if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if not isinstance(function, str) or len(operands) < len(inputs) or not operands or "args" in op:
        return None
    operator = ARITHMETIC.get(function)
    if operator is not None and len(operands) > 1:
        return reduce(lambda left, right: Binary(start=0, end=0, operator=operator, left=left, right=right), operands)
    if function == "neg":
        return Unary(start=0, end=0, operator="-", operand=operands[0])
    name = NUMERIC.get(function, function)
    called = Name(start=0, end=0, name=name)
    return Call(start=0, end=0, function=called, arguments=tuple(operands)) if name in FUNCTIONS else None
