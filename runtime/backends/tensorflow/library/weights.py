"""Weights of models out of files."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import named_variables
from runtime.support.weight_files import StoredWeight, read_weights, require_fit

TYPES = {
    "BOOL": tf.bool,
    "U8": tf.uint8,
    "I8": tf.int8,
    "I16": tf.int16,
    "U16": tf.uint16,
    "F16": tf.float16,
    "BF16": tf.bfloat16,
    "I32": tf.int32,
    "U32": tf.uint32,
    "F32": tf.float32,
    "I64": tf.int64,
    "U64": tf.uint64,
    "F64": tf.float64,
}
"""The types of a file."""
SIGNED = {tf.uint32: tf.int32, tf.uint64: tf.int64}
"""Types with the same bytes, for those that TensorFlow does not decode."""


def load_weights(model: Any, name: str, path: str) -> None:
    """Give a model the weights and buffers in a safetensors file, in the types it has.

    Raises ModelError, and changes nothing, where the file cannot be read or does not fit.
    """
    found = read_weights(name, path)
    variables = {key: variable for key, variable, _ in named_variables(model)}
    kinds = {dtype: kind for kind, dtype in TYPES.items()}
    wanted = {
        key: StoredWeight(kinds[each.dtype], tuple(size or 0 for size in each.shape.as_list()))
        for key, each in variables.items()
    }
    require_fit(name, path, found, wanted)
    for key, variable in variables.items():
        variable.assign(tf.cast(to_tensor(found[key]), variable.dtype))


def to_tensor(stored: StoredWeight) -> tf.Tensor:
    """Return a tensor of a file."""
    dtype = TYPES[stored.kind]
    decoded = tf.io.decode_raw(bytes(stored.data), SIGNED.get(dtype, dtype))
    return tf.reshape(tf.bitcast(decoded, dtype) if dtype in SIGNED else decoded, stored.shape)
