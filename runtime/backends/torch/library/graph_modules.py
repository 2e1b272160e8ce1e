"""What surrounds calls of models in a step that is captured as one graph."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import nn

from runtime.backends.torch.library.modules import Frozen


def frozen_in_eager(parameters: Sequence[nn.Parameter]) -> Frozen | nullcontext[None]:
    """Return a context inside which no gradient of these parameters is recorded.

    In a graph it does nothing: gradients name their targets, and what no later op reads is left out.
    """
    return nullcontext() if torch.compiler.is_compiling() else Frozen(parameters)
