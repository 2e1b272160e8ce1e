"""Python's parser, for expressions and for files that declare graphs."""

from __future__ import annotations

import ast
import warnings
from threading import RLock

_LOCK = RLock()


def parse(text: str) -> ast.Module:
    """Return the syntax tree of a text, without warnings, for one thread at a time.

    CPython 3.11 counts the depth of the trees that all threads make together, and fails at random where two do. Raises
    what ``ast.parse`` raises: SyntaxError, ValueError, MemoryError or RecursionError.
    """
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression; raises what :func:`parse` raises."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body
