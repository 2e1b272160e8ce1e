"""The projection: what parameters are made to satisfy right after they were stepped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.operands import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
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
