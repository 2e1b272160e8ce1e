"""Expressions: Python's grammar, read into nodes of our own from a closed list; Python evaluates nothing.

There are two kinds: of numbers, in variables (``${= 0.7 * temperature**2}``), and of values, in ops
(``reward + ${discount} * (1 - done) * worth``). Every node knows the characters that it was read from, so that a
message can point at them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from graphspec.read.builder import Plain
from graphspec.read.misreadings import (
    ExpressionError,
    Signatures,
    explain_attribute,
    explain_mask,
    explain_node,
    explain_text,
)
from graphspec.read.syntax import parse_expression

LONGEST = 2_000
"""Characters of an expression."""
DEEPEST = 100
"""Operations and calls of an expression inside each other."""

Scalar: TypeAlias = int | float


class Node(Struct, frozen=True, kw_only=True):
    """A part of an expression: the characters from ``start`` up to ``end``."""

    start: int
    end: int


class Number(Node, frozen=True, kw_only=True):
    """A number."""

    value: Scalar


class Name(Node, frozen=True, kw_only=True):
    """A name: of a value with its dots (``now.action``), and with interpolations as they are written (``${tau}``)."""

    name: str


class Unary(Node, frozen=True, kw_only=True):
    """A part with an operator before it: ``-`` or ``~``."""

    operator: str
    operand: Expression


class Binary(Node, frozen=True, kw_only=True):
    """An operator between two parts."""

    operator: str
    left: Expression
    right: Expression


class Call(Node, frozen=True, kw_only=True):
    """A call of a function by its name."""

    function: Name
    arguments: tuple[Expression, ...]
    options: tuple[Option, ...] = ()


class Option(Node, frozen=True, kw_only=True):
    """An option of a call; the characters are those of its value, the name begins at ``name_start``."""

    name: str
    name_start: int
    value: Plain
    """A name is its text."""


class Subscript(Node, frozen=True, kw_only=True):
    """A part of a value; ``at`` is what stands between the brackets, from ``at_start`` up to ``at_end``."""

    operand: Expression
    at: str
    at_start: int
    at_end: int


Expression: TypeAlias = Number | Name | Unary | Binary | Call | Subscript


class Grammar(Struct, frozen=True, kw_only=True):
    """What expressions of one kind are made of."""

    operators: Mapping[type[ast.AST], str]
    """Between two parts and, of the classes of ``ast.unaryop``, before one."""
    has_options: bool
    """Whether calls have options, and values are subscripted."""
    made_of: str
    """All of it in words."""
    help: str


NUMBERS = Grammar(
    operators={
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.FloorDiv: "//",
        ast.Mod: "%",
        ast.Pow: "**",
        ast.USub: "-",
    },
    has_options=False,
    made_of="numbers, variables, + - * / // % **, and calls",
    help="write it as in Python: `0.7 * temperature**2`",
)
VALUES = Grammar(
    operators={
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.Pow: "**",
        ast.MatMult: "@",
        ast.BitAnd: "&",
        ast.BitOr: "|",
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.USub: "-",
        ast.Invert: "~",
    },
    has_options=True,
    made_of="values, numbers, + - * / ** @, comparisons, & | ~, subscripts, and calls of library functions",
    help="write it as in Python: `reward + 0.99 * (1 - done) * minimum(q_1, q_2)`",
)
PI = "pi"
CONSTANTS: Mapping[str, float] = {PI: math.pi}

_TOKEN = re.compile(r"\$\{[^{}]*\}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.([A-Za-z_]\w*|[1-9][0-9]*))*", re.ASCII)
_NUMBERED = re.compile(r"([A-Za-z_]\w*\.)([1-9][0-9]*)(?=\.[A-Za-z_])", re.ASCII)
"""The part of a name with the number of an iteration, as in `critic.2.loss`, which is no name to Python."""


_NO_FUNCTIONS: Signatures = {}


def read_expression(text: str, grammar: Grammar, functions: Signatures = _NO_FUNCTIONS) -> Expression:
    """Return what a text says; line breaks are spaces. Raises ExpressionError for what is no expression.

    Messages suggest no other ``functions`` than these.
    """
    if len(text) > LONGEST:
        message = f"an expression has at most {LONGEST:,} characters, this one has {len(text):,}"
        raise ExpressionError(message, 0, len(text), "give a part of it a name of its own")
    # On one line and without indentation, so that it is read as if it stood in brackets. An interpolation is read as a
    # name, or as a part of one, and so is the number of an iteration.
    line = "".join(" " if each.isspace() else each for each in text)
    masked = line
    if grammar.has_options:
        masked = _TOKEN.sub(lambda found: "_" * len(found.group()), line)
        masked = _NUMBERED.sub(lambda found: found[1] + "_" * len(found[2]), masked)
    shift = len(line) - len(line.lstrip())
    try:
        tree = parse_expression(masked.strip())  # what Python warns of is refused below
    except SyntaxError as error:
        # Where the text ends too early, Python says 0.
        at = shift + (error.offset - 1 if error.offset else len(line.strip()) - 1)
        at = min(max(at, 0), max(len(text) - 1, 0))
        raise explain_text(line, at, grammar.help) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("this is not an expression that can be read", 0, len(text), grammar.help) from None
    return _Reader(line, masked.strip().encode(), shift, grammar, functions).read(tree, 0)


class _Reader:
    """Turns Python's nodes into ours; Python counts columns in bytes of the line."""

    def __init__(self, line: str, encoded: bytes, shift: int, grammar: Grammar, functions: Signatures) -> None:
        self._line = line
        self._encoded = encoded
        self._shift = shift
        self._grammar = grammar
        self._functions = functions

    def read(self, node: ast.expr, depth: int) -> Expression:
        """Return a node of ours; raise ExpressionError for one that is not in the list."""
        start, end = self._find(node)
        if depth == DEEPEST:
            message = f"an expression nests at most {DEEPEST} deep"
            raise ExpressionError(message, start, end, "give a part of it a name of its own")
        grammar, operators = self._grammar, self._grammar.operators
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Number(start=start, end=end, value=value)
            case ast.Name():
                return self._read_name(node)
            case ast.Attribute() if grammar.has_options:
                return self._read_name(node)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand, depth + 1)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in operators:
                return Unary(start=start, end=end, operator=operators[type(op)], operand=self.read(operand, depth + 1))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in operators:
                if (error := explain_mask(node, start, end)) is not None:
                    raise error
                first, second = self.read(left, depth + 1), self.read(right, depth + 1)
                return Binary(start=start, end=end, operator=operators[type(op)], left=first, right=second)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in operators:
                first, second = self.read(left, depth + 1), self.read(right, depth + 1)
                return Binary(start=start, end=end, operator=operators[type(op)], left=first, right=second)
            case ast.Call(func=ast.Name() as function, args=given, keywords=keywords) if (
                grammar.has_options or not keywords
            ):
                arguments = tuple(self.read(each, depth + 1) for each in given)
                options = tuple(self._read_option(each, depth + 1) for each in keywords)
                name = self._read_name(function)
                return Call(start=start, end=end, function=name, arguments=arguments, options=options)
            case ast.Subscript(value=value, slice=at) if grammar.has_options:
                at_start, at_end = self._find(at)
                text = self._line[at_start:at_end]
                operand = self.read(value, depth + 1)
                return Subscript(start=start, end=end, operand=operand, at=text, at_start=at_start, at_end=at_end)
            case _:
                message = f"an expression has {grammar.made_of}: no {_name_kind(node)}"
                known = explain_node(node, self._line, self._find, self._functions, of_values=grammar.has_options)
                raise known or ExpressionError(message, start, end, grammar.help)

    def _read_name(self, node: ast.expr) -> Name:
        """Return a name as it is written, with its dots and interpolations."""
        start, end = self._find(node)
        name = self._line[start:end]
        if isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name | ast.Attribute):
            raise explain_attribute(None, node.attr, start, end)
        if _DOTTED.fullmatch(_TOKEN.sub("_", name)) is None:
            raise ExpressionError("this is not a name", start, end, "a name has letters, digits and `_`")
        return Name(start=start, end=end, name=name)

    def _read_option(self, node: ast.keyword, depth: int) -> Option:
        """Return an option of a call."""
        start, end = self._find(node.value)
        if node.arg is None:
            raise ExpressionError("options are written one by one", start, end, "write `name=value`")
        value, name_start = self._read_literal(node.value, depth), self._column(node.col_offset)
        return Option(start=start, end=end, name=node.arg, name_start=name_start, value=value)

    def _read_literal(self, node: ast.expr, depth: int) -> Plain:
        """Return the value of an option: a number, a text, a name as a text, or a list of them."""
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Name(id="true" | "false" | "null" as word):
                start, end = self._find(node)
                name = "None" if word == "null" else word.title()
                raise ExpressionError(f"an expression has no `{word}`", start, end, f"write `{name}`, as in Python")
            case ast.Name():
                return self._read_name(node).name
            case ast.List(elts=items) | ast.Tuple(elts=items) if depth < DEEPEST:
                return [self._read_literal(each, depth + 1) for each in items]
            case _:
                start, end = self._find(node)
                help = "write a constant as in Python: `axis=1`, `keepdims=True`, `shape=[batch, -1]`"
                raise ExpressionError("an option is a constant", start, end, help)

    def _find(self, node: ast.expr) -> tuple[int, int]:
        """Return the characters of a node, those of a tuple in brackets without them."""
        return self._column(node.col_offset), self._column(node.end_col_offset or 0)

    def _column(self, offset: int) -> int:
        return self._shift + len(self._encoded[:offset].decode())


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
        case Unary() | Subscript():
            yield from find_names(expression.operand)
        case Binary():
            yield from find_names(expression.left)
            yield from find_names(expression.right)
        case Call():
            for each in expression.arguments:
                yield from find_names(each)
        case Number():
            pass
