"""Schedules by their points and their parts, as peers' tests write them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any


def stairs(*values: tuple[int | str, float]) -> dict[str, Any]:
    """Return a schedule that has one value from each count, or duration, on."""
    return {"schedule": "piecewise", "at": {str(count): value for count, value in values}}


def lines(*points: tuple[int, float], kind: str = "linear") -> dict[str, Any]:
    """Return a schedule that goes in straight lines, or half cosines, from point to point, and stays at the last."""
    return join(
        *(
            {"schedule": kind, "from": low, "to": high, "over": end - begin}
            for (begin, low), (end, high) in pairwise(points)
        )
    )


def join(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return one schedule after another; the last lasts for ever."""
    last = {key: value for key, value in parts[-1].items() if key != "for"}
    return {"schedule": "join", "parts": [*parts[:-1], last]}


def constant(value: float, length: int | str) -> dict[str, Any]:
    """Return a value that lasts for some counts, or a duration."""
    return {"schedule": "constant", "value": value, "for": length}
