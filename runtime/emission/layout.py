"""Layout of one statement: syntax tree to lines of text, broken at commas where a line would be too long."""

from __future__ import annotations

import ast
import copy
import io
import tokenize

WIDTH = 120
INDENT = 4

Bracketed = ast.Call | ast.List | ast.Tuple | ast.Dict


def lay_out(statement: ast.stmt, indent: int) -> tuple[str, ...]:
    """Return the lines of a statement without a body (or of the header of one with a body), indented."""
    header = _header(statement)
    header.lineno = 1  # ``ast.unparse`` looks up the type comment of a statement's line, and fails where it has none
    lines = _break_statement(header, WIDTH - indent)
    return tuple(" " * indent + line for line in lines)


def _header(statement: ast.stmt) -> ast.stmt:
    """Return the statement with its body, if it has one, emptied to a mark that is cut off again."""
    if isinstance(statement, (ast.With, ast.If, ast.For, ast.FunctionDef)):
        header = copy.copy(statement)
        header.body = [ast.Pass()]
        return header
    return statement


def _break_statement(statement: ast.stmt, width: int) -> list[str]:
    """Return the lines of a statement whose value is broken into one line per element where it must be."""
    text = unparse(statement)
    if isinstance(statement, (ast.With, ast.If, ast.For, ast.FunctionDef)):
        return text[: text.rindex("\n")].split("\n")
    value = getattr(statement, "value", None)
    if not isinstance(value, Bracketed) or (len(text) <= width and not _is_stack(value)):
        return [text]
    prefix = text.removesuffix(unparse(value))
    first, *rest = _break(value, width, len(prefix))
    return [prefix + first, *rest]


def _break(expression: ast.expr, width: int, before: int) -> list[str]:
    """Return the lines of an expression: one where it fits behind ``before`` characters, else one per element."""
    text = unparse(expression)
    if not isinstance(expression, Bracketed) or (before + len(text) <= width and not _is_stack(expression)):
        return [text]
    opening, entries, closing = _take_apart(expression)
    lines = [opening]
    for prefix, entry in entries:
        first, *rest = _break(entry, width - INDENT, len(prefix) + 1)
        lines.append(" " * INDENT + prefix + first)
        lines.extend(" " * INDENT + line for line in rest)
        lines[-1] += ","
    return [*lines, closing]


def _is_stack(expression: ast.expr) -> bool:
    """Return whether an expression is a container of layers, which reads best with one layer per line."""
    if not isinstance(expression, ast.Call):
        return False
    nested = any(isinstance(argument, ast.Call) for argument in expression.args)
    is_container = nested and len(expression.args) > 1
    is_container = is_container and unparse(expression.func) in ("nn.Sequential", "Residual")
    return is_container or any(_is_stack(argument) for argument in expression.args)


def _take_apart(expression: Bracketed) -> tuple[str, list[tuple[str, ast.expr]], str]:
    """Return the opening text, the elements with what stands before each, and the closing text of an expression."""
    match expression:
        case ast.Call():
            keywords = [(f"{keyword.arg}=" if keyword.arg else "**", keyword.value) for keyword in expression.keywords]
            return f"{unparse(expression.func)}(", [*(("", value) for value in expression.args), *keywords], ")"
        case ast.Dict():
            keys = [f"{unparse(key)}: " if key is not None else "**" for key in expression.keys]
            return "{", list(zip(keys, expression.values, strict=True)), "}"
        case ast.List():
            return "[", [("", value) for value in expression.elts], "]"
        case ast.Tuple():
            return "(", [("", value) for value in expression.elts], ")"


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
    # Right to left, so that the columns of earlier tokens stay true; only literals of one line are touched.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        body = token.string[1:-1]
        if token.type == tokenize.STRING and token.string[0] == "'" and not set(body) & {'"', "\\"}:
            row, start = token.start[0] - 1, token.start[1]
            lines[row] = f'{lines[row][:start]}"{body}"{lines[row][token.end[1] :]}'
    return "\n".join(lines)
