"""Keyed random numbers: every draw has a key of its own, so that no draw depends on what else was drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.threefry import derive_key, derived_key, portable_numbers

Extent: TypeAlias = Sequence[Any] | tf.Tensor
"""A shape: sizes, of which some may be scalar tensors, or one tensor of sizes."""

DRAWS = 1 << 20
"""More than the draws of one call of a model."""


@runtime_checkable
class Drawing(Protocol):
    """A layer that draws from a source which it is given: the library's, of whichever emitted module."""

    random: Any
    p: float


class KeyedRandom:
    """Random numbers keyed by (seed, mode, number of the step in that mode, op); TensorFlow's own are left alone.

    The number of the step is a tensor, so that a function is traced once for all steps; the rest is known by then.
    """

    def __init__(self, seed: int, dtype: tf.DType = tf.float32) -> None:
        self.seed, self.dtype = seed, dtype
        self.mode = ""
        self.step: Any = 0  # the number of the step in its mode: all else that draws depend on
        self.words, self.draws = (0, 0), 0  # the key of the op that runs, and its draws so far

    def start(self, mode: str, step: Any) -> None:
        """Start the step of this number, an int64 tensor, in a mode."""
        self.mode, self.step = mode, tf.cast(step, tf.int64)

    def seek(self, op: str) -> None:
        """Go to the start of an op's numbers in this step."""
        self.words, self.draws = derive_key(self.seed, "draw", self.mode, op), 0

    def attach(self, model: tf.Module) -> None:
        """Let the dropout layers of a model draw here."""
        for layer in model.submodules:
            if isinstance(layer, Drawing):
                layer.random = self

    def next_seed(self) -> tf.Tensor:
        """Return the seed of TensorFlow's stateless operators for the next draw: two words of 64 bits."""
        low, high = self.words
        signed = (low | (high << 32)) - ((high >> 31) << 64)
        count = self.step * DRAWS + self.draws
        self.draws += 1
        return tf.stack([tf.constant(signed, tf.int64), count])

    def rekey(self, op: str, states: Sequence[Any]) -> None:
        """Set the states of a model's own generators: what it draws next is keyed by the op in this step."""
        self.seek(op)
        full: Any = None  # the whole range of the type
        for state in states:
            state.assign(tf.random.stateless_uniform(state.shape, self.next_seed(), full, full, state.dtype))

    def keyed(self, op: str, call: Callable[..., Any], states: Sequence[Any] = ()) -> Callable[..., Any]:
        """Return a call of a model that draws the numbers of the op each time, by layers or from states of its own."""

        def called(*args: Any, **kwargs: Any) -> Any:
            """Call the model from the start of the op's numbers."""
            self.rekey(op, states)
            return call(*args, **kwargs)

        return called

    def __deepcopy__(self, memo: dict[int, Any]) -> KeyedRandom:
        return self  # a copy of a model draws from the same source


class NativeRandom(KeyedRandom):
    """Keyed random numbers by TensorFlow's Philox: fast, and the same on the same device only."""

    def draw(self, shape: Extent, dtype: tf.DType) -> tf.Tensor:
        """Return the next numbers of the op that runs, evenly spread over [0, 1)."""
        return tf.random.stateless_uniform(shape, self.next_seed(), dtype=dtype, alg="philox")

    def normal(self, op: str, shape: Extent, mean: float = 0.0, std: float = 1.0) -> tf.Tensor:
        """Return normally distributed numbers."""
        self.seek(op)
        centre, width = (typed(each, self.dtype) for each in (mean, std))
        return tf.random.stateless_normal(shape, self.next_seed(), centre, width, self.dtype, alg="philox")

    def uniform(self, op: str, shape: Extent, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Return numbers spread evenly from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return below(spread(self.draw(shape, self.dtype), low, high), low, high)

    def bernoulli(self, op: str, shape: Extent, p: float = 0.5) -> tf.Tensor:
        """Return ones with probability ``p`` among zeros."""
        self.seek(op)
        return tf.cast(self.draw(shape, tf.float32) < typed(p, tf.float32), self.dtype)

    def randint(self, op: str, shape: Extent, high: int, low: int = 0) -> tf.Tensor:
        """Return whole numbers from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return tf.random.stateless_uniform(shape, self.next_seed(), low, high, tf.int64, alg="philox")

    def permutation(self, op: str, n: Any) -> tf.Tensor:
        """Return the numbers 0 ... n - 1 in random order."""
        self.seek(op)
        return in_order(self.draw([n], tf.float64))

    def keep_mask(self, shape: Extent, p: float, dtype: tf.DType) -> tf.Tensor:
        """Return ones with probability ``1 - p`` among zeros: the next numbers of the op that runs."""
        return tf.cast(self.draw(shape, tf.float32) >= p, dtype)


class PortableRandom(KeyedRandom):
    """Keyed random numbers that are the same bit for bit on every device and framework; made on the host."""

    def numbers(self, shape: Extent, kind: str) -> tf.Tensor:
        """Return the next numbers of the op that runs: its draws in a step are counted, each has a key of its own."""
        counter = tf.stack([tf.cast(self.step, tf.int64), tf.constant(self.draws, tf.int64)])
        key = derived_key(tf.constant(self.words, tf.int64), counter)
        self.draws += 1
        return tf.reshape(portable_numbers(key, tf.reduce_prod(tf.cast(shape, tf.int64)), kind), shape)

    def normal(self, op: str, shape: Extent, mean: float = 0.0, std: float = 1.0) -> tf.Tensor:
        """Return normally distributed numbers."""
        self.seek(op)
        return tf.cast(self.numbers(shape, "normal") * std + mean, self.dtype)

    def uniform(self, op: str, shape: Extent, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Return numbers spread evenly from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return below(tf.cast(spread(self.numbers(shape, "uniform"), low, high), self.dtype), low, high)

    def bernoulli(self, op: str, shape: Extent, p: float = 0.5) -> tf.Tensor:
        """Return ones with probability ``p`` among zeros."""
        self.seek(op)
        return tf.cast(self.numbers(shape, "uniform") < p, self.dtype)

    def randint(self, op: str, shape: Extent, high: int, low: int = 0) -> tf.Tensor:
        """Return whole numbers from ``low`` up to, not including, ``high``."""
        self.seek(op)
        return tf.cast(tf.floor(self.numbers(shape, "uniform") * (high - low)), tf.int64) + low

    def permutation(self, op: str, n: Any) -> tf.Tensor:
        """Return the numbers 0 ... n - 1 in random order."""
        self.seek(op)
        return in_order(self.numbers([n], "bits"))

    def keep_mask(self, shape: Extent, p: float, dtype: tf.DType) -> tf.Tensor:
        """Return ones with probability ``1 - p`` among zeros: the next numbers of the op that runs."""
        return tf.cast(self.numbers(shape, "uniform") >= p, dtype)


def in_order(x: tf.Tensor) -> tf.Tensor:
    """Return the places of the elements in rising order; equal ones keep theirs."""
    return tf.cast(tf.argsort(x, stable=True), tf.int64)


def spread(x: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Return numbers of [0, 1) spread over [low, high)."""
    if not (tf.is_tensor(low) or tf.is_tensor(high)) and (low, high) == (0.0, 1.0):
        return x
    return x * typed(high - low, x.dtype) + typed(low, x.dtype)


def below(x: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """Return ``low`` in place of numbers that rounding took up to ``high``."""
    return tf.where(x < typed(high, x.dtype), x, typed(low, x.dtype))
