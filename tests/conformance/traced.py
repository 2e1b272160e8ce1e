"""A function that counts how often it is traced: Python runs in it only then."""

from __future__ import annotations

import tensorflow as tf

COUNT = [0]


def count(x: tf.Tensor) -> tf.Tensor:
    """Return x."""
    COUNT[0] += 1
    return x
