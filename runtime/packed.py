"""Packed models: the weights of a model as the content of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """The weights of a model as a safetensors file, and what is in it: (shape, type) by name."""

    content: bytes
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    notes: tuple[str, ...] = ()
    """What of the model the file does not hold."""
