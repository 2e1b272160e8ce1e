"""The moves that make views of a digit: what byol.yaml names as `views:shift`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def shift(image: Tensor, offset: Tensor) -> Tensor:
    """Move every image [n, channels, h, w] by its own offset [n, 2] of -1, 0 or 1 pixels; what comes in is paper."""
    height, width = image.shape[2:]
    windows = F.pad(image, (1, 1, 1, 1), value=-1.0).unfold(2, height, 1).unfold(3, width, 1)
    each = torch.arange(len(image), device=image.device)
    return windows[each, :, 1 + offset[:, 0], 1 + offset[:, 1]]
