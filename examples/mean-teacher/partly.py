"""Digits of which few have a label, and the moves that make views of them: what mean-teacher.yaml needs in Python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # each function imports the one framework that it needs
    import tensorflow as tf
    import torch

Arrays = Mapping[str, npt.NDArray[np.generic]]


def digits(labels: int, seed: int) -> Arrays:
    """Return all training digits as `unlabelled`, and `image` and `label` of some `labels`, as many of every class.

    Those with a label are repeated until there are as many as the others, so that a batch has as many of both.
    """
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        chosen = ~held["is_test"]
        image = (held["image"][chosen, np.newaxis] / 8 - 1).astype(np.float32)  # from -1 (paper) to 1 (ink)
        label = held["label"][chosen].astype(np.int64)
    random = np.random.default_rng(seed)
    each = [random.choice(np.flatnonzero(label == digit), labels // 10, replace=False) for digit in range(10)]
    known = np.resize(np.concatenate(each), len(label))
    return {"unlabelled": image, "image": image[known], "label": label[known]}


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
