"""Initial values of built-in layers: the defaults of ``torch.nn``, on every backend."""

from __future__ import annotations

import math

from compiler.program import Initializer

ZEROS = Initializer(kind="zeros")
ONES = Initializer(kind="ones")
STANDARD_NORMAL = Initializer(kind="normal", bound=1.0)


def fan_in_uniform(fan_in: int) -> Initializer:
    """Return uniform within 1/sqrt(fan_in).

    For biases PyTorch writes it so; for weights it writes kaiming_uniform with a = sqrt(5), whose bound is
    sqrt(3) * sqrt(2 / (1 + a^2)) / sqrt(fan_in), the same number (He et al. 2015, arXiv:1502.01852).
    """
    return Initializer(kind="uniform", bound=1.0 / math.sqrt(fan_in))
