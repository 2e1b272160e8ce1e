"""Metrics.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from typing import Unpack

from graphspec.python.values import Fields, Operand, Value, record_function


def accuracy(scores: Operand, target: Operand, *, reset: int | str | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `accuracy`: fraction of samples whose largest score is at the target."""
    return record_function("metric", "accuracy", [scores, target], {}, {**fields, "reset": reset})


def mean(x: Operand, *, reset: int | str | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `mean`: mean of all elements."""
    return record_function("metric", "mean", [x], {}, {**fields, "reset": reset})
