"""Trees: tensors as arrays of the host and back, alone and anywhere in the plain data that user code gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.generic]

NAMED: Mapping[torch.dtype, str] = {
    getattr(torch, name): name
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
"""The types of tensors that are stored as they are."""
KIND, VALUES = "tensor", "values"
"""The keys of a mapping that stands for what an array alone does not tell: a tensor of another type, or no tensor."""
ARRAY, MAPPING = "numpy", "mapping"
"""Kinds that are no tensors: an array of NumPy's, and a mapping that has these very keys itself."""


def to_array(tensor: torch.Tensor) -> Array:
    """Return a copy of a tensor on the host: complex numbers as pairs, other types that NumPy lacks as float32."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.dtype not in NAMED:
        plain = plain.float()  # bfloat16 and smaller: every value is kept exactly
    return plain.to("cpu", copy=True).numpy()


def describe_array(tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
    """Return shape and type of the array that a tensor becomes."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tuple(plain.shape), NAMED.get(plain.dtype, "float32")


def copy_array(tensor: torch.Tensor, array: Array) -> None:
    """Copy an array that was made of a tensor of this shape and type back into it."""
    plain = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    plain.copy_(from_array(array))


def from_array(array: Array) -> torch.Tensor:
    """Return a tensor with a copy of an array."""
    return torch.from_numpy(np.array(array, order="C"))


def encode(tree: Any) -> Any:
    """Return a tree with every tensor as an array; what an array does not tell stands beside it."""
    match tree:
        case torch.Tensor():
            array = to_array(tree)
            return array if tree.dtype in NAMED else {KIND: str(tree.dtype).removeprefix("torch."), VALUES: array}
        case np.ndarray():
            return {KIND: ARRAY, VALUES: tree.copy()}
        case Mapping():
            found = {key: encode(value) for key, value in tree.items()}
            return {KIND: MAPPING, VALUES: found} if found.keys() == {KIND, VALUES} else found
        case list() | tuple():
            return [encode(value) for value in tree]
        case _:
            return tree


def decode(tree: Any, device: torch.device | str = "cpu") -> Any:
    """Return the tree that :func:`encode` was given; its tensors are put on a device."""
    match tree:
        case np.ndarray():
            return _put(from_array(tree), device)
        case {"tensor": "numpy", "values": array, **others} if not others:
            return np.array(array)
        case {"tensor": "mapping", "values": dict() as found, **others} if not others:
            return {key: decode(value, device) for key, value in found.items()}
        case {"tensor": str(kind), "values": array, **others} if not others:
            return _put(_convert(from_array(array), getattr(torch, kind)), device)
        case Mapping():
            return {key: decode(value, device) for key, value in tree.items()}
        case list():
            return [decode(value, device) for value in tree]
        case _:
            return tree


def _convert(stored: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in the type it had before it was stored."""
    return torch.view_as_complex(stored).to(dtype) if dtype.is_complex else stored.to(dtype)


def _put(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Return a tensor on a device; Apple's has no float64."""
    is_too_wide = tensor.dtype == torch.float64 and torch.device(device).type == "mps"
    return (tensor.float() if is_too_wide else tensor).to(device)
