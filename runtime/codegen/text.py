"""Printing of emitted code: statements with comments at their ends or above them, and the origin of each line."""

from __future__ import annotations

import ast
import copy
import io
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runtime.codegen import syntax

WIDTH = 120
INDENT = 4

BLOCKS = ast.With | ast.If | ast.For | ast.FunctionDef
Bracketed = ast.Call | ast.List | ast.Tuple | ast.Dict


def lay_out(statement: ast.stmt, indent: int) -> tuple[str, ...]:
    """Return the lines of a statement without a body (or of the header of one with a body), indented.

    Its value is broken into one line per element where it must be; a sum or a product gets a line of its own first.
    """
    header = statement
    if isinstance(statement, BLOCKS):
        header = copy.copy(statement)
        header.body = [ast.Pass()]  # a marker, which is cut off
    header.lineno = 1  # ``ast.unparse`` looks up the type comment of a statement's line, and fails where it has none
    text, width, value = unparse(header), WIDTH - indent, getattr(statement, "value", None)
    if isinstance(statement, BLOCKS):
        lines = text[: text.rindex("\n")].split("\n")
    elif isinstance(value, ast.BinOp) and len(text) > width:
        whole = unparse(value)
        terms = [whole] if len(whole) <= width - INDENT else _split_sum(value)
        lines = [f"{text.removesuffix(whole)}(", *(" " * INDENT + term for term in terms), ")"]
    elif not isinstance(value, Bracketed) or (len(text) <= width and not _is_stack(value)):
        lines = [text]
    else:
        prefix = text.removesuffix(unparse(value))
        first, *rest = _break(value, width, len(prefix))
        lines = [prefix + first, *rest]
    return tuple(" " * indent + line for line in lines)


def _break(expression: ast.expr, width: int, before: int) -> list[str]:
    """Return the lines of an expression: one where it fits after ``before`` characters, else one per element."""
    text = unparse(expression)
    if not isinstance(expression, Bracketed) or (before + len(text) <= width and not _is_stack(expression)):
        return [text]
    match expression:
        case ast.Call():
            keywords = [(f"{keyword.arg}=" if keyword.arg else "**", keyword.value) for keyword in expression.keywords]
            opening, closing = f"{unparse(expression.func)}(", ")"
            entries = [*(("", value) for value in expression.args), *keywords]
        case ast.Dict():
            keys = [f"{unparse(key)}: " if key is not None else "**" for key in expression.keys]
            opening, closing, entries = "{", "}", list(zip(keys, expression.values, strict=True))
        case ast.List():
            opening, closing, entries = "[", "]", [("", value) for value in expression.elts]
        case ast.Tuple():
            opening, closing, entries = "(", ")", [("", value) for value in expression.elts]
    lines = [opening]
    for prefix, entry in entries:
        first, *rest = _break(entry, width - INDENT, len(prefix) + 1)
        lines.append(" " * INDENT + prefix + first)
        lines.extend(" " * INDENT + line for line in rest)
        lines[-1] += ","
    return [*lines, closing]


def _split_sum(expression: ast.expr) -> Iterator[str]:
    """Yield the terms of a sum, each with its sign; of a product its factors, and of anything else the whole."""
    kinds = (ast.Add, ast.Sub)
    if isinstance(expression, ast.BinOp) and not isinstance(expression.op, kinds):
        kinds = (ast.Mult, ast.Div)
    rest: list[str] = []
    while isinstance(expression, ast.BinOp) and isinstance(expression.op, kinds):
        # Next to a number a term gets the brackets that it needs.
        alone = unparse(syntax.binary(syntax.constant(1), expression.op, expression.right))
        rest.append(alone.removeprefix("1 "))
        expression = expression.left
    first = unparse(syntax.binary(expression, kinds[0](), syntax.constant(1))) if rest else unparse(expression)
    yield first.rpartition(" ")[0].rpartition(" ")[0] if rest else first
    yield from reversed(rest)


def _is_stack(expression: ast.expr) -> bool:
    """Return whether an expression is a container of layers, which is printed with one layer per line."""
    if not isinstance(expression, ast.Call):
        return False
    nested = any(isinstance(argument, ast.Call) for argument in expression.args)
    is_container = nested and len(expression.args) > 1
    is_container = is_container and unparse(expression.func) in ("nn.Sequential", "Residual")
    return is_container or any(_is_stack(argument) for argument in expression.args)


def unparse(node: ast.AST) -> str:
    """Return the source of a syntax tree with double quotes around strings."""
    text = ast.unparse(node)
    if "'" not in text:
        return text
    return text.replace("'", '"') if _is_plain(text) else _double_quoted(text)


def _is_plain(text: str) -> bool:
    """Return whether every quote of a source is a single one around a literal without a prefix: most are."""
    before = text.split("'")[:-1:2]
    return '"' not in text and "\\" not in text and not any(part[-1:].isalnum() for part in before)


def _double_quoted(text: str) -> str:
    """Return source with every plain '...' literal written as "..."."""
    lines = text.split("\n")
    # Right to left, so that the columns of earlier tokens stay valid; only literals of one line are changed.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        body = token.string[1:-1]
        if token.type == tokenize.STRING and token.string[0] == "'" and not set(body) & {'"', "\\"}:
            row, start = token.start[0] - 1, token.start[1]
            lines[row] = f'{lines[row][:start]}"{body}"{lines[row][token.end[1] :]}'
    return "\n".join(lines)


GAP = 2
FARTHEST_COLUMN = 84
"""The rightmost column of aligned comments; on a longer line they start right after the code."""


class Line(Struct, frozen=True, kw_only=True):
    """One statement: ``comment`` goes at its end, ``above`` in comment lines before it; the op it belongs to."""

    statement: ast.stmt
    comment: str = ""
    above: tuple[str, ...] = ()
    op: str = ""
    place: str = ""
    writes: bool = False
    """Whether it, or a function called in it, changes state that outlives the step."""


class Block(Struct, frozen=True, kw_only=True):
    """A statement with a body (``with``, ``if``, ``def``); the header is a line of its own."""

    header: Line
    body: tuple[Code, ...]
    doc: str = ""
    joins: bool = False
    """A ``with`` that may share its block with neighbours of which the same is true."""


class Source(Struct, frozen=True, kw_only=True):
    """Text copied verbatim (support code), a comment line, or blank lines."""

    text: str


Code: TypeAlias = "Line | Block | Source"


class Printed(Struct, frozen=True, kw_only=True):
    """One physical line of code, its trailing comment not yet placed, and the (op, place) it belongs to."""

    text: str
    comment: str = ""
    origin: tuple[str, str] | None = None
    writes: bool = False


class Page(Struct, frozen=True, kw_only=True):
    """Printed code: the text, for each 1-based line of an op the op and its place, and the lines that write."""

    text: str
    places: dict[int, tuple[str, str]] = {}
    writes: frozenset[int] = frozenset()


def print_code(code: Sequence[Code]) -> Page:
    """Return the page of top-level code; comments are aligned within each top-level block."""
    lines: list[str] = []
    places: dict[int, tuple[str, str]] = {}
    writes: set[int] = set()
    for entry in code:
        for line in align(tuple(_print(entry, 0))):
            lines.append(line.text)
            if line.origin is not None:
                places[len(lines)] = line.origin
            writes.update([len(lines)] if line.writes else [])
    return Page(text="\n".join(lines) + "\n", places=places, writes=frozenset(writes))


def align(lines: Sequence[Printed]) -> Iterator[Printed]:
    """Yield the lines with their comments placed: in one column where they fit, else after or above their line."""
    column = max(
        (end for line in lines if line.comment and (end := len(line.text) + GAP) <= FARTHEST_COLUMN), default=0
    )
    for line in lines:
        start = max(column, len(line.text) + GAP)
        if not line.comment:
            yield line
        elif start + len(line.comment) + GAP <= WIDTH:
            yield replace(line, text=f"{line.text:<{start}}# {line.comment}", comment="")
        elif len(line.text) + GAP + len(line.comment) + GAP <= WIDTH:
            yield replace(line, text=f"{line.text}  # {line.comment}", comment="")
        else:
            indent = len(line.text) - len(line.text.lstrip())
            yield from _comment_lines(line.comment, indent, line.origin)
            yield replace(line, comment="")


def _print(code: Code, indent: int) -> Iterator[Printed]:
    """Yield the physical lines of a piece of code."""
    match code:
        case Line():
            yield from _print_line(code, indent)
        case Block():
            yield from _print_line(code.header, indent)
            if code.doc:
                margin, quotes = " " * (indent + INDENT), '"' * 3
                first, *rest = textwrap.wrap(plain(code.doc), WIDTH - len(margin) - 6, break_on_hyphens=False)
                yield Printed(text=f"{margin}{quotes}{first}{quotes if not rest else ''}")
                yield from (Printed(text=margin + text) for text in (*rest, quotes) if rest)
            for entry in code.body:
                yield from _print(entry, indent + INDENT)
        case Source():
            for text in code.text.split("\n"):
                yield Printed(text=" " * indent + text if text else "")


def _print_line(line: Line, indent: int) -> Iterator[Printed]:
    """Yield the comment lines above a statement and the lines of the statement, the comment at the end of its first."""
    origin = (line.op, line.place) if line.op else None
    for note in line.above:
        yield from _comment_lines(note, indent, origin)
    first, *rest = lay_out(line.statement, indent)
    yield Printed(text=first, comment=plain(line.comment), origin=origin, writes=line.writes)
    for text in rest:
        yield Printed(text=text, origin=origin, writes=line.writes)


def _comment_lines(note: str, indent: int, origin: tuple[str, str] | None) -> Iterator[Printed]:
    """Yield a note as comment lines."""
    for text in textwrap.wrap(plain(note), WIDTH - indent - 2, break_on_hyphens=False):
        yield Printed(text=f"{' ' * indent}# {text}", origin=origin)


def plain(text: str) -> str:
    """Return a text on one line that cannot end a comment or a docstring: names and notes come from the spec."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
