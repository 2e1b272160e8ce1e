"""The setting: where and how a plan is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from runtime.codegen.resources import PLAIN, Extras
from runtime.engine.weights import NO_FILES, WeightFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a plan is built: the models in ``given`` are used in place of those declared."""

    device: str
    dtype: tf.DType
    seed: int
    given: Mapping[str, Any]
    weights: WeightFiles = field(default=NO_FILES)
    extras: Extras = PLAIN
    jit_compile: bool = False
