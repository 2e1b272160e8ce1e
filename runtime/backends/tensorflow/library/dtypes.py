"""Types of numbers: exact constants, and what operands of different types become together, as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def typed(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a number or a tensor in a type.

    ``tf.cast`` alone takes Python's numbers through float32: 0.1 would become 0.10000000149 in float64.
    """
    if tf.is_tensor(value):
        return tf.cast(value, dtype)
    wide = tf.int64 if isinstance(value, int) else tf.float64
    return tf.cast(tf.constant(value, wide), dtype)


def promoted(*operands: Any) -> list[Any]:
    """Return operands in one type: floating wins over whole numbers over truth values, then the wider type.

    Tensors with axes decide among those of a kind, then tensors without, then Python's numbers (torch.result_type).
    """
    dtype = result_type(operands)
    return [typed(operand, dtype) for operand in operands]


def result_type(operands: Sequence[Any]) -> tf.DType:
    """Return the type that operands have together."""
    tensors = [operand for operand in operands if tf.is_tensor(operand)]
    groups = (
        [tensor.dtype for tensor in tensors if tensor.shape.rank != 0],
        [tensor.dtype for tensor in tensors if tensor.shape.rank == 0],
        [default_type(operand) for operand in operands if not tf.is_tensor(operand)],
    )
    found = tf.bool
    for dtypes in groups:  # the later ones count only where they are of a higher kind
        wider = widest(dtypes)
        found = wider if kind_of(wider) > kind_of(found) else found
    return found


def default_type(value: bool | int | float) -> tf.DType:
    """Return the type of a number of Python's."""
    if isinstance(value, bool):
        return tf.bool
    return tf.int64 if isinstance(value, int) else tf.float32


def kind_of(dtype: tf.DType) -> int:
    """Return 0 for truth values, 1 for whole numbers, 2 for floating ones."""
    return 2 if dtype.is_floating else int(dtype.is_integer)


def widest(dtypes: Sequence[tf.DType]) -> tf.DType:
    """Return the type that holds all of some types."""
    kind = max(map(kind_of, dtypes), default=0)
    found = tf.bool
    for dtype in (each for each in dtypes if kind_of(each) == kind):
        found = dtype if found == tf.bool else wider_of(found, dtype)
    return found


def wider_of(one: tf.DType, other: tf.DType) -> tf.DType:
    """Return the type that holds two types of a kind."""
    if one != other and one.size == other.size:
        return tf.float32 if one.is_floating else tf.int16  # float16 with bfloat16, int8 with uint8
    return one if one.size > other.size else other


def floated(x: Any) -> tf.Tensor:
    """Return a tensor as floating numbers: whole ones become float32."""
    x = tf.convert_to_tensor(x)
    return x if x.dtype.is_floating else tf.cast(x, tf.float32)
