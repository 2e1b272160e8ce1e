"""Weights of models out of files."""

from __future__ import annotations

import torch
from torch import nn

from runtime.support.weight_files import StoredWeight, read_weights, require_fit

TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
}
"""The types of a file."""


def load_weights(model: nn.Module, name: str, path: str) -> None:
    """Give a model the weights and persistent buffers in a safetensors file, in the types it has.

    Raises ModelError, and changes nothing, where the file cannot be read or does not fit.
    """
    found = read_weights(name, path)
    tensors = {key: each for key, each in model.state_dict().items() if isinstance(each, torch.Tensor)}
    kinds = {dtype: kind for kind, dtype in TYPES.items()}
    wanted = {key: StoredWeight(kinds[each.dtype], tuple(each.shape)) for key, each in tensors.items()}
    require_fit(name, path, found, wanted)
    with torch.no_grad():
        for key, tensor in tensors.items():
            tensor.copy_(to_tensor(found[key]))


def to_tensor(stored: StoredWeight) -> torch.Tensor:
    """Return a tensor of a file."""
    dtype = TYPES[stored.kind]
    if not stored.data:
        return torch.empty(stored.shape, dtype=dtype)
    return torch.frombuffer(bytearray(stored.data), dtype=dtype).reshape(stored.shape)
