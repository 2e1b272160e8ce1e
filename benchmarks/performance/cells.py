"""Figures as cells of a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

from benchmarks.figures import Row

Rows = Sequence[Row]


def line(*cells: str) -> str:
    """Return a line of a table; an empty cell is one space."""
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def head(*titles: str) -> str:
    """Return the head of a table."""
    return line(*titles) + "\n" + "|---" * len(titles) + "|"


def number(value: float, digits: int = 2) -> str:
    """Return a number as people round it: a figure that ends in 5 is rounded up."""
    return str(Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def thousands(value: float) -> str:
    """Return a whole number with a comma between thousands."""
    return f"{int(number(value, 0)):,}"


def brief(milliseconds: float) -> str:
    """Return milliseconds: whole ones from ten on, and tenths below."""
    return number(milliseconds, 0 if milliseconds >= 10 else 1)


def spread(ratio: Sequence[float]) -> str:
    """Return the percentiles of a ratio; nothing of the baseline's to itself."""
    _, low, high = ratio
    return "" if low == high == 1 else f"{number(low)} - {number(high)}"


def extent(values: Sequence[float]) -> str:
    """Return the least and the greatest of some numbers."""
    return f"{number(min(values))} to {number(max(values))}"


def search(rows: Rows, **wanted: str) -> Row:
    """Return the row that has some words; an empty one where there is none."""
    return next((row for row in rows if all(row[name] == word for name, word in wanted.items())), {})


def find(rows: Rows, **wanted: str) -> Row:
    """Return the row that has some words. Raises LookupError where there is none."""
    if found := search(rows, **wanted):
        return found
    raise LookupError(f"no figures of {', '.join(wanted.values())}")
