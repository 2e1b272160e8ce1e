"""The setting: where and how a plan is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a plan is built: the models in ``given`` are used in place of those declared."""

    device: str
    dtype: tf.DType
    seed: int
    given: Mapping[str, Any]
    jit_compile: bool = False
