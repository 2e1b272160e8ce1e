"""Schedules as options: numbers that change while training."""

from __future__ import annotations

from graphspec.python.values import Schedule


def schedule(kind: str, **fields: object) -> Schedule:
    """Return a schedule for an option, with the fields of its kind.

    >>> from graphspec.library import schedule
    >>> schedule("cosine", from_=1e-3, to=0, over="10 epochs")
    {'schedule': 'cosine', 'from': 0.001, 'to': 0, 'over': '10 epochs'}
    """
    return {"schedule": kind, **{key.rstrip("_"): each for key, each in fields.items()}}
