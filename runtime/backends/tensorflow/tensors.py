"""Conversion of tensors: inputs of callers become tensors on the device, and outputs become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from compiler.ir.program import InputDecl, Program
from runtime.engine.backend import Signature
from runtime.engine.trees import decode_tree, encode_tree
from runtime.engine.user_models import CONVERTED, accepted_types, find_shapes
from runtime.state import KEPT

DTYPES: Mapping[str, tf.DType] = {
    "float32": tf.float32,
    "float64": tf.float64,
    "float16": tf.float16,
    "bfloat16": tf.bfloat16,
    "int64": tf.int64,
    "int32": tf.int32,
    "uint8": tf.uint8,
    "bool": tf.bool,
}
"""The types of the language."""


def describe(value: object) -> Signature | None:
    """Return shape and type of a tensor or array; None for anything else."""
    match value:
        case tf.Tensor() | tf.Variable():
            return _sizes(value.shape), value.dtype.name
        case np.ndarray():
            return value.shape, value.dtype.name
        case _:
            return None


def _sizes(shape: tf.TensorShape) -> tuple[int, ...]:
    """Return the sizes of a shape that is known."""
    return tuple(size or 0 for size in shape.as_list())


def fingerprint(value: object) -> object:
    """Return a key of the shape, type and place of a tensor or array; None for anything else."""
    match value:
        case tf.Tensor():
            # TensorFlow hashes types and shapes in Python, which is slow; every type is a single object.
            return *value.shape.as_list(), id(value.dtype), value.device
        case tf.Variable():
            return tuple(value.shape), value.dtype.name
        case np.ndarray():
            return value.shape, value.dtype
        case _:
            return None


def to_tensor(value: object, device: str, dtype: tf.DType) -> tf.Tensor:
    """Return a tensor or array as a tensor of a type on a device."""
    if isinstance(value, tf.Tensor) and value.dtype == dtype and is_on(value, device):
        return value  # the common case, and much faster
    with tf.device(device):
        if isinstance(value, np.ndarray):
            return tf.convert_to_tensor(np.ascontiguousarray(value, dtype.as_numpy_dtype).reshape(value.shape))
        assert isinstance(value, (tf.Tensor, tf.Variable))
        tensor = tf.cast(value, dtype)
        return tensor if is_on(tensor, device) else tf.identity(tensor)


def is_on(tensor: tf.Tensor, device: str) -> bool:
    """Return whether a tensor is on a device: ``cpu``, ``gpu:0``."""
    wanted = device if ":" in device else f"{device}:0"
    return tensor.device.lower().endswith(wanted)


def to_numpy(value: object) -> npt.NDArray[np.generic]:
    """Return a copy of a tensor on the host; bfloat16, which NumPy lacks, as float32."""
    assert isinstance(value, (tf.Tensor, tf.Variable))
    tensor = tf.cast(value, tf.float32) if value.dtype == tf.bfloat16 else value
    return np.array(tensor.numpy())


def accepted(declared: InputDecl, built: tf.DType) -> tuple[str, ...]:
    """Return the types an input may have: as declared, or as the step is built."""
    return accepted_types(declared, built.name)


def target_dtype(declared: InputDecl, built: tf.DType) -> tf.DType:
    """Return the type in which a step takes an input."""
    return built if declared.dtype in CONVERTED else DTYPES[declared.dtype]


def sample_inputs(program: Program, sizes: Mapping[str, int], built: tf.DType) -> dict[str, tf.Tensor] | None:
    """Return made-up inputs of the declared shapes, free sizes as given; None where a size is not known."""
    specs = specify_inputs(program, sizes, built)
    if specs is None:
        return None
    return {  # numbers of [0, 1), or zeros where they are whole
        name: tf.constant(np.random.default_rng(0).random(_sizes(spec.shape)), spec.dtype)
        if spec.dtype.is_floating
        else tf.zeros(spec.shape, spec.dtype)
        for name, spec in specs.items()
    }


def specify_inputs(program: Program, sizes: Mapping[str, int], built: tf.DType) -> dict[str, tf.TensorSpec] | None:
    """Return shapes and types of all inputs, free sizes as given; None where a size is not known."""
    shapes = find_shapes(program, sizes)
    if shapes is None:
        return None
    entries = program.inputs
    return {each.name: tf.TensorSpec(shapes[each.name], target_dtype(each, built), name=each.name) for each in entries}


Array = npt.NDArray[np.generic]


def to_array(tensor: Any) -> Array:
    """Return a copy of a tensor or variable on the host.

    Complex numbers are pairs; other types that a checkpoint lacks are float32, which keeps each of their values.
    """
    array: Any = np.array(tensor.numpy())
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1)
    return array if array.dtype.name in KEPT else array.astype(np.float32)


def describe_array(tensor: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and type of the array that a tensor becomes."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if dtype.is_complex:
        return (*shape, 2), dtype.real_dtype.name
    return shape, dtype.name if dtype.name in KEPT else "float32"


def from_array(array: Any, dtype: tf.DType) -> Any:
    """Return the numbers of an array that was made of a tensor of a type, in that type."""
    if dtype.is_complex:
        return (array[..., 0] + 1j * array[..., 1]).astype(dtype.as_numpy_dtype)
    return array.astype(dtype.as_numpy_dtype)


def encode(tree: Any) -> Any:
    """Return a tree with every tensor as an array; facts that an array cannot hold are put next to it."""

    def store(value: object) -> tuple[Array, str] | None:
        """Return the array of a tensor, and the type that the array does not have."""
        if not isinstance(value, (tf.Tensor, tf.Variable)):
            return None
        return to_array(value), "" if value.dtype.name in KEPT else value.dtype.name

    return encode_tree(tree, store)


def decode(tree: Any) -> Any:
    """Return the tree that :func:`encode` was given."""

    def restore(array: Array, kind: str) -> tf.Tensor:
        """Return a tensor in the type that it had before it was stored."""
        dtype = tf.as_dtype(kind or array.dtype)
        return tf.constant(from_array(array, dtype), dtype)

    return decode_tree(tree, restore)
