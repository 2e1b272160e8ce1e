"""Tensors at the door: what callers pass becomes tensors on the device, and what comes out becomes arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from compiler.ir.program import InputDecl, Program
from runtime.engine.backend import Signature
from runtime.engine.user_models import CONVERTED, accepted_types

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
"""The types of the language."""


def describe(value: object) -> Signature | None:
    """Return shape and type of a tensor or array; None for anything else."""
    match value:
        case torch.Tensor():
            return tuple(value.shape), str(value.dtype).removeprefix("torch.")
        case np.ndarray():
            return value.shape, value.dtype.name
        case _:
            return None


def fingerprint(value: object) -> object:
    """Return what tells tensors and arrays apart that are not taken alike; None for anything else."""
    match value:
        case torch.Tensor():
            return value.shape, value.dtype, value.device, value.requires_grad, value.is_inference()
        case np.ndarray():
            return value.shape, value.dtype
        case _:
            return None


def to_tensor(value: object, device: torch.device, dtype: torch.dtype | None) -> torch.Tensor:
    """Return a tensor or array as a tensor on a device, without a graph of the caller's; with a dtype, converted."""
    if isinstance(value, np.ndarray):
        # torch shares the array's memory: it wants it writeable, and without negative strides.
        plain = value if value.flags.writeable and value.flags.c_contiguous else value.copy()
        return _recordable(torch.from_numpy(plain).to(device, dtype))
    assert isinstance(value, torch.Tensor)
    return _recordable((value.detach() if value.requires_grad else value).to(device, dtype))


def _recordable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that a graph can be recorded on, though the caller is in inference mode."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def to_numpy(value: object) -> npt.NDArray[np.generic]:
    """Return a copy of a tensor on the host; bfloat16, which NumPy lacks, as float32."""
    assert isinstance(value, torch.Tensor)
    tensor = value.detach()
    tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return tensor.cpu().numpy().copy()


def accepted(declared: InputDecl, built: torch.dtype) -> tuple[str, ...]:
    """Return the types an input may have: as declared, or as the step is built."""
    return accepted_types(declared, str(built).removeprefix("torch."))


def target_dtype(declared: InputDecl, built: torch.dtype) -> torch.dtype:
    """Return the type in which a step takes an input."""
    return built if declared.dtype in CONVERTED else DTYPES[declared.dtype]


def sample_inputs(
    program: Program, sizes: Mapping[str, int], device: torch.device, built: torch.dtype
) -> dict[str, torch.Tensor] | None:
    """Return made-up inputs of the declared shapes, free sizes as given; None where a size is not known."""
    generator = torch.Generator().manual_seed(0)
    inputs: dict[str, torch.Tensor] = {}
    for entry in program.inputs:
        if entry.shape is None or any(isinstance(size, str) and size not in sizes for size in entry.shape):
            return None
        shape = [size if isinstance(size, int) else sizes[size] for size in entry.shape]
        dtype = target_dtype(entry, built)
        drawn = torch.rand(shape, generator=generator) if dtype.is_floating_point else torch.zeros(shape)
        inputs[entry.name] = drawn.to(device, dtype)
    return inputs
