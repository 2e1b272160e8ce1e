"""Views of images, pixel by pixel."""

from __future__ import annotations

import torch


def move(images: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return images [n, 1, h, w] where each pixel is the one an offset [n, 2] away, or -1 beyond the border."""
    moved = torch.full_like(images, -1.0)
    count, _, height, width = images.shape
    for n in range(count):
        down, right = offsets[n].tolist()
        for row in range(max(0, -down), min(height, height - down)):
            for column in range(max(0, -right), min(width, width - right)):
                moved[n, 0, row, column] = images[n, 0, row + down, column + right]
    return moved
