"""The moves that make views of a digit: what byol.yaml names as `views:shift`, and the same for TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each function imports the one framework that it needs
    import tensorflow as tf
    import torch


def shift(image: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Move every image [n, channels, h, w] by its own offset [n, 2] of -1, 0 or 1 pixels; what comes in is paper."""
    import torch

    height, width = image.shape[2:]
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1), value=-1.0)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    each = torch.arange(len(image), device=image.device)
    return windows[each, :, 1 + offset[:, 0], 1 + offset[:, 1]]


def shift_tf(image: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Do the same with TensorFlow."""
    import tensorflow as tf

    height, width = image.shape[2:]
    padded = tf.pad(image, [[0, 0], [0, 0], [1, 1], [1, 1]], constant_values=-1.0)
    rows = 1 + offset[:, :1] + tf.range(height, dtype=offset.dtype)
    columns = 1 + offset[:, 1:] + tf.range(width, dtype=offset.dtype)
    moved = tf.gather(padded, rows, axis=2, batch_dims=1)
    return tf.gather(moved, columns, axis=3, batch_dims=1)
