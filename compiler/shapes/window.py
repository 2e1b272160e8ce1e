"""Sizes of what windows sliding over an axis make: convolution, pooling, transposed convolution."""

from __future__ import annotations

from compiler.operands import Dimension
from compiler.shapes.dimension import add, divide, scale


def window_count(size: Dimension, *, kernel: int, stride: int, padding: int, dilation: int = 1) -> Dimension:
    """Return how many windows fit: floor((size + 2*padding - dilation*(kernel-1) - 1) / stride) + 1."""
    return divide(add(size, 2 * padding - dilation * (kernel - 1) - 1 + stride), stride)


def transposed_size(size: Dimension, *, kernel: int, stride: int, padding: int, extra: int) -> Dimension:
    """Return the size whose windows are ``size``: (size - 1)*stride - 2*padding + kernel + extra."""
    return add(scale(size, stride), kernel + extra - stride - 2 * padding)
