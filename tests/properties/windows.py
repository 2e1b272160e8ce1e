"""Updates that take the gradients of several steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def accumulate(draft: Draft) -> None:
    """Let some updates accumulate; where sums and means are added up, every step counts alike."""
    for op in draft.ops.values():
        if "update" in op and draft.chance(0.6):
            steps = draft.random.choice([2, 2, 3])
            kinds = set(_find_reductions(draft, op.get("loss") or op["gradients"]))
            words = ["steps"] if len(kinds) > 1 else ["mean", "mean", "sum", "steps"]
            reduce = draft.random.choice(words)
            op["accumulate"] = steps if reduce == "mean" else {"steps": steps, "reduce": reduce}


def _find_reductions(draft: Draft, value: object) -> Iterator[str]:
    """Yield how the terms of a loss, or of what a gradient set is made of, are reduced."""
    names = value if isinstance(value, list) else [value]
    for name in names:
        op = draft.ops.get(name, {}) if isinstance(name, str) else {}
        if "loss" in op:
            yield "sum" if op.get("reduction") == "sum" else "mean"
        elif "gradient" in op:
            yield from _find_reductions(draft, op["gradient"])
        elif op.get("call") in ("add", "sub", "mul", "div", "neg", "lerp") or "transform" in op:
            yield from _find_reductions(draft, op["inputs"])
        elif isinstance(name, str):
            yield "mean"
