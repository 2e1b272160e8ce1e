"""Arrays as the bytes of a safetensors file, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.state import Array

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""The element types of a checkpoint, as numpy names them."""

_RESERVED = "__metadata__"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Shape and element type of an array."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """Return it as `float32[2, 3]`."""
        return f"{self.dtype}{list(self.shape)}"


def describe(arrays: Mapping[str, Array]) -> dict[str, Signature]:
    """Return the signatures of arrays, by name."""
    return {name: Signature(shape=array.shape, dtype=array.dtype.name) for name, array in arrays.items()}


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as a safetensors file; raise ValueError for names and types that it cannot hold."""
    import numpy as np
    from safetensors.numpy import save

    for name, array in arrays.items():
        _check(name, array)
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _check(name: str, array: Array) -> None:
    if array.dtype.name not in TYPES:
        raise ValueError(f"{name!r} has the type {array.dtype.name}, and a checkpoint holds {', '.join(TYPES)}")
    if name == _RESERVED or _SURROGATE.search(name):
        raise ValueError(f"no array may be named {name!r}")


def unpack(content: bytes) -> dict[str, Array]:
    """Return the arrays of a safetensors file; raise ValueError where it is none."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(content))
    except (SafetensorError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise ValueError(f"it is not a safetensors file ({str(error).splitlines()[0]})") from error
