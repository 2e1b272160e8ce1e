"""Initial values of models, drawn under a key of (seed, model, parameter)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.context import context as eager_context

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.layers import Sequential
from runtime.backends.tensorflow.library.threefry import derive_key, portable_numbers


def initial_tensor(
    seed: int,
    model: str,
    parameter: str,
    shape: Sequence[int],
    kind: str,
    bound: float,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """Return the initial values of a parameter, the same on every device and framework.

    ``kind`` is zeros, ones, constant (= bound), uniform (within +-bound) or normal (standard deviation = bound).
    """
    constants = {"zeros": 0.0, "ones": 1.0, "constant": bound}
    if kind in constants:
        return tf.fill(shape, typed(constants[kind], dtype))
    numbers = portable_numbers(derive_key(seed, "initial", model, parameter), math.prod(shape), kind)
    if kind == "uniform":
        numbers = numbers * 2.0 - 1.0
    return tf.cast(tf.reshape(numbers * bound, shape), dtype)


def set_initial(model: Sequential, seed: int, name: str, values: Mapping[str, tuple[str, float]]) -> None:
    """Give a model called ``name`` its initial values; ``values`` has (kind, bound) by parameter or buffer."""
    tensors = {**model.named_parameters(), **model.named_buffers()}
    for parameter, (kind, bound) in values.items():
        variable: Any = tensors[parameter]
        variable.assign(initial_tensor(seed, name, parameter, tuple(variable.shape), kind, bound, variable.dtype))


@contextmanager
def forked_seed(seed: int, name: str) -> Iterator[None]:
    """Seed the global random numbers by (seed, name) inside; outside they go on as if nothing had been drawn.

    Keras draws the seeds of initial weights from Python's numbers; user code may draw from NumPy's and TensorFlow's.
    """
    low, high = derive_key(seed, "construct", name)
    tensorflow = vars(eager_context())
    kept = random.getstate(), np.random.get_state(), {key: tensorflow.get(key) for key in ("_seed", "_rng")}
    random.seed(low | (high << 32))
    np.random.seed(low)
    tf.random.set_seed(low)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        tensorflow.update(kept[2])  # TensorFlow itself has no way to read them
