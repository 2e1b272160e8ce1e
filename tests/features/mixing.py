"""A user's function of a gradient set, in any framework."""

from __future__ import annotations

from typing import Any


def mix(gradients: tuple[Any, Any]) -> Any:
    """Return a number made of two gradients that are numbers."""
    first, second = gradients
    return first * first + 3.0 * first * second
