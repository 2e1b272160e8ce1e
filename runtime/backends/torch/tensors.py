"""Conversion of tensors: inputs of callers become tensors on the device, and outputs become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from compiler.ir.program import InputDecl, Program
from runtime.engine.backend import Signature
from runtime.engine.trees import decode_tree, encode_tree
from runtime.engine.user_models import CONVERTED, accepted_types, find_shapes

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
    """Return a key by which tensors and arrays are converted alike; None for anything else."""
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
        # torch shares the array's memory, which must be writeable, and without negative strides.
        tensor = torch.from_numpy(value if value.flags.carray else value.copy())
        if tensor.dtype != dtype or device.type != "cpu":
            tensor = tensor.to(device, dtype)
    else:
        assert isinstance(value, torch.Tensor)
        tensor = (value.detach() if value.requires_grad else value).to(device, dtype)
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):  # on one of a caller in inference mode no graph can be recorded
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
    shapes = find_shapes(program, sizes)
    if shapes is None:
        return None
    inputs: dict[str, torch.Tensor] = {}
    for entry in program.inputs:
        dtype, shape = target_dtype(entry, built), shapes[entry.name]
        drawn = torch.rand(shape, generator=generator) if dtype.is_floating_point else torch.zeros(shape)
        inputs[entry.name] = drawn.to(device, dtype)
    return inputs


Array = npt.NDArray[np.generic]

NAMED: Mapping[torch.dtype, str] = {
    getattr(torch, name): name
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
"""The types of tensors that are stored as they are."""


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
    """Copy an array back into a tensor of the shape and type that it was made of."""
    plain = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    plain.copy_(from_array(array))


def from_array(array: Array) -> torch.Tensor:
    """Return a tensor with a copy of an array."""
    return torch.from_numpy(np.array(array, order="C"))


def encode(tree: Any) -> Any:
    """Return a tree with every tensor as an array; facts that an array cannot hold are put next to it."""

    def store(value: object) -> tuple[Array, str] | None:
        """Return the array of a tensor, and the type that the array does not have."""
        if not isinstance(value, torch.Tensor):
            return None
        return to_array(value), "" if value.dtype in NAMED else str(value.dtype).removeprefix("torch.")

    return encode_tree(tree, store)


def decode(tree: Any, device: torch.device | str = "cpu") -> Any:
    """Return the tree that :func:`encode` was given; its tensors are put on a device."""

    def restore(array: Array, kind: str) -> torch.Tensor:
        """Return a tensor in the type that it had before it was stored; Apple's device has no float64."""
        tensor = from_array(array)
        if kind:
            dtype: torch.dtype = getattr(torch, kind)
            tensor = torch.view_as_complex(tensor).to(dtype) if dtype.is_complex else tensor.to(dtype)
        is_too_wide = tensor.dtype == torch.float64 and torch.device(device).type == "mps"
        return (tensor.float() if is_too_wide else tensor).to(device)

    return decode_tree(tree, restore)
