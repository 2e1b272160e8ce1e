"""User classes to be exported, or not: used by the tests as ``tests.backends.tensorflow.exporters:Name``."""

from __future__ import annotations

import tensorflow as tf

from tests.backends.tensorflow.users import Module


class Sized(Module):
    """Python that decides by the size of a batch."""

    def __call__(self, x):
        y = super().__call__(x)
        return y * 2 if x.shape[0] == 8 else y


class Drawing(Module):
    """Noise also where nothing is trained."""

    def __call__(self, x):
        y = super().__call__(x)
        return y + tf.random.normal(tf.shape(y))


class Counting(Module):
    """A count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(0.0, trainable=False)

    def __call__(self, x):
        self.calls.assign_add(1.0)
        return super().__call__(x)


class Looking(Module):
    """Numbers looked up in a table."""

    def __init__(self) -> None:
        super().__init__()
        keys = tf.constant([0, 1], tf.int64)
        start = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1.0, 2.0]))
        self.table = tf.lookup.StaticHashTable(start, 0.0)

    def __call__(self, x):
        return super().__call__(x) + self.table.lookup(tf.ones((1,), tf.int64))


class Odd(Module):
    """A buffer of a type that safetensors lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = tf.Variable(tf.zeros(2, tf.complex128), trainable=False)
