"""Penalties and constraints in words."""

from __future__ import annotations

from compiler.operands import Scheduled
from compiler.penalty import Penalty
from compiler.projection import Projection


def tell_penalty(penalty: Penalty) -> str:
    """Return a penalty in words: ``l2 0.5 of net (fit 'weight$')``."""
    numbers = (f"{name} {tell_number(value)}" for name, value in (("l1", penalty.l1), ("l2", penalty.l2)) if value)
    what = penalty.function or " + ".join(numbers) or "nothing"
    return f"{what} of {penalty.model}{_tell_match(penalty.match)}"


def tell_projection(projection: Projection) -> str:
    """Return a constraint in words: ``net to clip [-1, 1]``."""
    return f"{projection.model} to {_tell_kind(projection)}{_tell_match(projection.match)}"


def _tell_kind(projection: Projection) -> str:
    """Return what the parameters satisfy."""
    over = "" if projection.axis is None else f" over {', '.join(map(str, projection.axis))}"
    match projection.kind:
        case "clip":
            return f"clip [{tell_number(projection.low)}, {tell_number(projection.high)}]"
        case "max_norm":
            return f"max_norm {tell_number(projection.high)}{over}"
        case "function":
            return projection.function
        case _:
            return f"{projection.kind}{over}"


def tell_number(number: float | Scheduled) -> str:
    """Return a number, one that changes by the name under which the plan lists its schedule."""
    return str(number) if isinstance(number, Scheduled) else f"{number:g}"


def _tell_match(match: str | None) -> str:
    """Return which parameters are meant."""
    return "" if match is None else f" (fit '{match}')"
