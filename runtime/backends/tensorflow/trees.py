"""Trees: tensors as arrays of the host and back, alone and anywhere in the plain data that user code gives.

The arrays are those that PyTorch's backend makes, so that a state of either fits the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from runtime.state import KEPT

Array = npt.NDArray[np.generic]

KIND, VALUES = "tensor", "values"
"""The keys of a mapping that stands for what an array alone does not tell: a tensor of another type, or no tensor."""
ARRAY, MAPPING = "numpy", "mapping"
"""Kinds that are no tensors: an array of NumPy's, and a mapping that has these very keys itself."""


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
    """Return a tree with every tensor as an array; what an array does not tell stands beside it."""
    match tree:
        case tf.Tensor() | tf.Variable():
            array = to_array(tree)
            return array if tree.dtype.name in KEPT else {KIND: tree.dtype.name, VALUES: array}
        case np.ndarray():
            return {KIND: ARRAY, VALUES: tree.copy()}
        case Mapping():
            found = {key: encode(value) for key, value in tree.items()}
            return {KIND: MAPPING, VALUES: found} if found.keys() == {KIND, VALUES} else found
        case list() | tuple():
            return [encode(value) for value in tree]
        case _:
            return tree


def decode(tree: Any) -> Any:
    """Return the tree that :func:`encode` was given."""
    match tree:
        case np.ndarray():
            return tf.constant(tree)
        case {"tensor": "numpy", "values": array, **others} if not others:
            return np.array(array)
        case {"tensor": "mapping", "values": dict() as found, **others} if not others:
            return {key: decode(value) for key, value in found.items()}
        case {"tensor": str(kind), "values": array, **others} if not others:
            dtype = tf.as_dtype(kind)
            return tf.constant(from_array(array, dtype), dtype)
        case Mapping():
            return {key: decode(value) for key, value in tree.items()}
        case list():
            return [decode(value) for value in tree]
        case _:
            return tree
