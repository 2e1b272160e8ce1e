"""Users' constraints and penalties, as functions of one tensor."""

from __future__ import annotations

from typing import Any


def halve(w: Any) -> Any:
    """Return half of a tensor, on either backend."""
    return w * 0.5


def first_row(w: Any) -> Any:
    """Return a part of a tensor, which no constraint may."""
    return w[0]


def quartic_of_torch(w: Any) -> Any:
    """Return the sum of fourth powers."""
    import torch

    return torch.sum(w**4)


def quartic_of_tensorflow(w: Any) -> Any:
    """Return the sum of fourth powers."""
    import tensorflow as tf

    return tf.reduce_sum(w**4)
