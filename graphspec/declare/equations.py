"""Equations of ``einsum``: which axes of its factors are one, and which of them the result has."""

from __future__ import annotations

import re
from dataclasses import dataclass

_AXES = r"\s*[A-Za-z]+\s*"
EQUATION_PATTERN = rf"^{_AXES}(?:,{_AXES})*->\s*[A-Za-z]*\s*$"
"""A letter for each axis, factors between commas, and the axes of the result after the arrow."""


@dataclass(frozen=True, slots=True)
class Equation:
    """``bi,ij->bj``: the letters of the axes of every factor and of the result; what only factors have is summed."""

    factors: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        """Return it without spaces."""
        return f"{','.join(self.factors)}->{self.result}"


class EquationError(ValueError):
    """A text that is no equation; the message says what to write."""


def read_equation(written: object) -> Equation:
    """Return the equation that a text means; raise :class:`EquationError`.

    A letter stands once in each factor, and once in the result: a diagonal is refused.

    >>> str(read_equation("bi, ij -> bj"))
    'bi,ij->bj'
    """
    if not isinstance(written, str) or re.fullmatch(EQUATION_PATTERN, written) is None:
        raise EquationError("write a letter for each axis and an arrow before those of the result: `bi,ij->bj`")
    before, after = written.replace(" ", "").split("->")
    equation = Equation(tuple(before.split(",")), after)
    for axes in (*equation.factors, after):
        if len(set(axes)) < len(axes):
            raise EquationError(f"`{axes}` has a letter twice: give every axis of a factor, and of the result, its own")
    unknown = set(after).difference(*equation.factors)
    if unknown:
        raise EquationError(f"no factor has the axis `{min(unknown)}` of the result")
    return equation
