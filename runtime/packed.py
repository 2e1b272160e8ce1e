"""Packed models and programs: the weights of a model, and a mode of a step, as the content of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """The weights of a model as a safetensors file, and what is in it: (shape, type) by name."""

    content: bytes = field(repr=False)
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    notes: tuple[str, ...] = ()
    """What of the model the file does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedProgram:
    """A program that the framework alone can run: one file, or a folder of files.

    ``files`` are contents by path inside the folder, parts separated by ``/``; the one file of a program that is no
    folder has the path ``""``.
    """

    suffix: str
    """How the name of the file or folder ends: ``.pt2``."""
    files: Mapping[str, bytes] = field(repr=False)
