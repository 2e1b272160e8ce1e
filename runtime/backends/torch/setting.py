"""The setting: where and how a plan is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from runtime.codegen.resources import PLAIN, Extras
from runtime.engine.weights import NO_FILES, WeightFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a plan is built: the models in ``given`` are used in place of those declared."""

    device: torch.device
    dtype: torch.dtype
    seed: int
    given: Mapping[str, nn.Module]
    weights: WeightFiles = field(default=NO_FILES)
    extras: Extras = PLAIN
