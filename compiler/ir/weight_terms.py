"""Penalties and constraints in words."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from compiler.ir.value import Scheduled


class Penalty(Struct, frozen=True, kw_only=True):
    """A term over the stepped parameters of a model: l1 times their absolute values, l2 times their squares, summed.

    With ``function``, a user's ``pkg.mod:fn`` from a tensor to a number, its sum over the parameters.
    """

    model: str
    match: str | None = None
    """A pattern of their names; None for all."""
    l1: float | Scheduled = 0.0
    l2: float | Scheduled = 0.0
    function: str | None = None


class Projection(Struct, frozen=True, kw_only=True):
    """A constraint on the stepped parameters of a model.

    ``clip``: elements from ``low`` to ``high``; ``non_negative``: none below 0; ``unit_norm`` and ``max_norm``: norms
    over ``axis`` equal to 1, or at most ``high``; ``function``: what a user's ``pkg.mod:fn`` makes of each tensor.
    """

    model: str
    kind: Literal["clip", "non_negative", "unit_norm", "max_norm", "function"]
    match: str | None = None
    """A pattern of their names; None for all."""
    low: float | Scheduled = 0.0
    high: float | Scheduled = 0.0
    axis: tuple[int, ...] | None = None
    """Over which axes a norm is taken: None for all but the first, of a vector the only one."""
    function: str = ""


def format_penalty(penalty: Penalty) -> str:
    """Return a penalty in words: ``l2 0.5 of net (match: weight$)``."""
    numbers = (f"{name} {format_number(value)}" for name, value in (("l1", penalty.l1), ("l2", penalty.l2)) if value)
    what = penalty.function or " + ".join(numbers) or "nothing"
    return f"{what} of {penalty.model}{_format_match(penalty.match)}"


def format_projection(projection: Projection) -> str:
    """Return a constraint in words: ``net to clip [-1, 1]``."""
    over = "" if projection.axis is None else f" over {', '.join(map(str, projection.axis))}"
    match projection.kind:
        case "clip":
            kind = f"clip [{format_number(projection.low)}, {format_number(projection.high)}]"
        case "max_norm":
            kind = f"max_norm {format_number(projection.high)}{over}"
        case "function":
            kind = projection.function
        case _:
            kind = f"{projection.kind}{over}"
    return f"{projection.model} to {kind}{_format_match(projection.match)}"


def format_number(number: float | Scheduled) -> str:
    """Return a number; a scheduled one is shown by the name under which the plan lists its schedule."""
    return str(number) if isinstance(number, Scheduled) else f"{number:g}"


def _format_match(match: str | None) -> str:
    """Return which parameters are meant."""
    return "" if match is None else f" (match: {match})"
