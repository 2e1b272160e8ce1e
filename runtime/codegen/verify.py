"""Verification of emitted text: parsed as Python it must be exactly the syntax tree that it was printed from.

Text of a spec occurs in the tree only as a name or a literal. Where the parsed text differs, something of the spec has
escaped its quotes, and the text must not be executed or returned.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from runtime.codegen.syntax import fields_of
from runtime.codegen.text import BLOCKS, Block, Code, Line, Source


class EscapedError(RuntimeError):
    """Emitted text does not parse to the tree that it was printed from: a bug of stepgraph, never of a spec."""


def verify_text(text: str, code: Sequence[Code]) -> None:
    """Raise EscapedError where a text is not the code that it was printed from."""
    try:
        found = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise EscapedError(f"the emitted code is no Python: {error}") from error
    wrong = _find_difference(found, [*_find_statements(code)])
    if wrong is not None:
        raise EscapedError(f"the emitted code reads otherwise than it was made: {wrong}")


def _find_statements(code: Iterable[Code]) -> Iterator[ast.stmt]:
    """Yield the statements that a piece of code must parse to."""
    for entry in code:
        match entry:
            case Line():
                yield entry.statement
            case Block():
                doc = [ast.Expr(value=ast.Constant(value=...))] if entry.doc else []
                header = copy.copy(entry.header.statement)
                assert isinstance(header, BLOCKS)
                header.body = [*doc, *_find_statements(entry.body)]
                yield header
            case Source() if not entry.text.strip():
                continue
            case Source():
                found = ast.parse(entry.text).body
                match found:  # copied verbatim: a docstring, a known function, or only comments
                    case [] | [ast.Expr(value=ast.Constant(value=str()))] | [ast.FunctionDef()]:
                        yield from found
                    case _:
                        raise EscapedError(f"a text that is copied holds other code: {entry.text[:80]!r}")


def _find_difference(found: object, made: object) -> str | None:
    """Return where two trees, or lists of trees, differ; None where they do not. ``...`` matches any text."""
    pairs: list[tuple[object, object]] = [(found, made)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            if right is not ... or not isinstance(left, str):
                return _format_difference(left, right)
        elif isinstance(left, ast.AST):
            for name in fields_of(type(left)):
                these, those = getattr(left, name, None), getattr(right, name, None)
                if type(these) is not type(those) or these != those:  # a node is equal to itself alone
                    pairs.append(([] if these is None else these, [] if those is None else those))
        elif isinstance(left, list):
            these, those = cast("list[object]", left), cast("list[object]", right)
            if len(these) != len(those):
                return _format_difference(these, those)
            pairs += zip(these, those, strict=True)
        elif left != right:
            return _format_difference(left, right)
    return None


def _format_difference(found: object, made: object) -> str:
    """Return the parsed code, and the code it was printed from."""
    left, right = (ast.dump(each) if isinstance(each, ast.AST) else repr(each) for each in (found, made))
    return f"{left:.80} in place of {right:.80}"
