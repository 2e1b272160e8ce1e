"""Losses of users: the elements that a mask keeps, as (sum, count); and plain means."""

from __future__ import annotations

from typing import Any

import torch


def kept(y: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of what is kept, and how much that is."""
    return (y * mask).sum(), mask.sum()


def kept_tf(y: Any, mask: Any) -> tuple[Any, Any]:
    """Return the same for TensorFlow."""
    import tensorflow as tf

    return tf.reduce_sum(y * mask), tf.reduce_sum(mask)


def plain(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of everything."""
    return y.mean() + 0 * mask.sum()


def plain_tf(y: Any, mask: Any) -> Any:
    """Return the same for TensorFlow."""
    import tensorflow as tf

    return tf.reduce_mean(y) + 0 * tf.reduce_sum(mask)


class Fickle:
    """Return (sum, count) as long as nothing else is said."""

    is_one = False

    def __call__(self, y: torch.Tensor, mask: torch.Tensor) -> Any:
        """Return the loss."""
        return plain(y, mask) if Fickle.is_one else kept(y, mask)


fickle = Fickle()
