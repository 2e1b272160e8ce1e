"""Digits of which few have a label, and the moves that make views of them: what mean-teacher.yaml needs in Python."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

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


def shift(image: Tensor, offset: Tensor) -> Tensor:
    """Move every image [n, channels, h, w] by its own offset [n, 2] of -1, 0 or 1 pixels; what comes in is paper."""
    height, width = image.shape[2:]
    windows = F.pad(image, (1, 1, 1, 1), value=-1.0).unfold(2, height, 1).unfold(3, width, 1)
    each = torch.arange(len(image), device=image.device)
    return windows[each, :, 1 + offset[:, 0], 1 + offset[:, 1]]
