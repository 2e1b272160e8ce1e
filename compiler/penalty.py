"""The penalty: a term over parameters whose slope is added to a gradient set."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.operands import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalty:
    """A term over the stepped parameters of a model: l1 times their absolute values, l2 times their squares, summed.

    With ``function``, a user's ``pkg.mod:fn`` from a tensor to a number, its sum over the parameters.
    """

    model: str
    match: str | None = None
    """A pattern of their names; None for all."""
    l1: float | Scheduled = 0.0
    l2: float | Scheduled = 0.0
    function: str | None = None
