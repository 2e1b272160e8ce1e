"""Wording: names and numbers as parts of a sentence."""

from __future__ import annotations

from collections.abc import Iterable


def enumerate_names(names: Iterable[str], *, last: str = "and") -> str:
    """Return names as `a`, `b` and `c`."""
    *most, final = [f"`{name}`" for name in names] or ["nothing"]
    return f"{', '.join(most)} {last} {final}" if most else final


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
