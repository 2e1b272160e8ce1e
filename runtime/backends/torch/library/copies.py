"""Copies of models."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from runtime.support.closures import bound_again


def copied_module(model: nn.Module) -> nn.Module:
    """Return a copy of a model, with parameters and buffers of its own."""
    memo: dict[int, Any] = {}
    with bound_again(model.modules(), memo):
        return copy.deepcopy(model, memo)
