"""Shapes of the operands of losses, in words."""

from __future__ import annotations


def wanted_axes(fewest: int, most: int | None) -> str:
    """Return what shapes two operands of a loss have."""
    if fewest == 0:
        return "they must be equal, or one of them a single number"
    return f"they must be equal, with {fewest} axes{'' if most == fewest else ' or more'}"


def wanted_target(axis: int, shares: bool) -> str:
    """Return what target goes with scores."""
    other = ", or probabilities of the shape of the scores" if shares else ""
    last = "; classes on the last axis are `axis: -1`" if shares else ""
    return f"the target must be class numbers of the shape of the scores without axis {axis}{other}{last}"
