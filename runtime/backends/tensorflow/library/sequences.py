"""Layers of sequences [batch, positions, features]: positions, attention, recurrence."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.layers import Dropout, Layer


class PositionalEmbedding(Layer):
    """The input plus a learned vector for every position."""

    layout = "first"

    def __init__(self, count: int, features: int) -> None:
        super().__init__()
        self.shape = (count, features)

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [count, features]."""
        self.weight = self.add(path, "weight", self.shape, dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x plus the first rows of the weight; InvalidArgumentError where there are fewer than positions."""
        return x + tf.slice(self.weight, (0, 0), (tf.shape(x)[1], self.shape[1]))


class SinusoidalPositions(Layer):
    """The input plus sines and cosines of its positions (Vaswani et al. 2017, section 3.5)."""

    layout = "first"

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x plus sin(p / 10000^(2i / features)) at feature 2i and the cosine at 2i + 1, p from 0."""
        features = x.shape[2]
        feature = tf.range(features, dtype=tf.float64)
        rates = tf.constant(10000.0, tf.float64) ** -(feature // 2 * 2 / features)
        angles = tf.range(tf.shape(x)[1])[:, tf.newaxis]
        angles = tf.cast(angles, tf.float64) * rates
        return x + tf.cast(tf.where(feature % 2 == 0, tf.sin(angles), tf.cos(angles)), x.dtype)


class MultiHeadAttention(Layer):
    """Self-attention with several heads (Vaswani et al. 2017); its tensors are those of ``nn.MultiheadAttention``."""

    layout = "first"
    exact = False

    def __init__(
        self, embed_dim: int, num_heads: int, causal: bool = False, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.features, self.heads, self.causal, self.has_bias = embed_dim, num_heads, causal, bias
        self.dropout = Dropout(dropout)

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the projections of the input, three in one, and that of the result."""
        self.into = self.add(path, "in_proj_weight", (3 * self.features, self.features), dtype)
        self.into_bias = self.add(path, "in_proj_bias", (3 * self.features,), dtype) if self.has_bias else None
        self.out = self.add(path, "out_proj.weight", (self.features, self.features), dtype)
        self.out_bias = self.add(path, "out_proj.bias", (self.features,), dtype) if self.has_bias else None

    def project(self, x: tf.Tensor, weight: tf.Variable, bias: tf.Variable | None) -> tf.Tensor:
        """Return x W^T + b."""
        y = tf.matmul(self.operand(x), self.operand(weight), transpose_b=True)
        return y if bias is None else y + self.operand(bias)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return, for every position, what it takes of all positions, or of those up to itself."""
        batch, positions = tf.unstack(tf.shape(x)[:2])
        shape = (batch, positions, 3, self.heads, self.features // self.heads)
        parts = tf.transpose(tf.reshape(self.project(x, self.into, self.into_bias), shape), (2, 0, 3, 1, 4))
        query, key, value = tf.unstack(parts, 3)
        scores = tf.matmul(query, key, transpose_b=True)
        wide = tf.float32 if scores.dtype in (tf.float16, tf.bfloat16) else scores.dtype
        scores = tf.cast(scores, wide) / typed(math.sqrt(self.features // self.heads), wide)
        if self.causal:
            later = tf.range(positions) > tf.range(positions)[:, tf.newaxis]
            scores = tf.where(later, tf.constant(-math.inf, wide), scores)
        shares = self.dropout.call(tf.nn.softmax(scores), training, False)
        mixed = tf.matmul(self.operand(shares), value)
        joined = tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), (batch, positions, self.features))
        return self.project(joined, self.out, self.out_bias)


class Recurrent(Layer):
    """A recurrent layer with PyTorch's tensors and formulas; it computes in the precision of its weights."""

    layout = "first"
    gates, states = 0, 1

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False, last: bool = False) -> None:
        super().__init__()
        self.features, self.size, self.both, self.last = input_size, hidden_size, bidirectional, last

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the weights of the input and of the state with their offsets, for each direction."""
        rows = self.gates * self.size
        shapes = ((rows, self.features), (rows, self.size), (rows,), (rows,))
        for names in self.directions():
            for name, shape in zip(names, shapes, strict=True):
                setattr(self, name, self.add(path, name, shape, dtype))  # a derived model puts its own in its place

    def directions(self) -> list[tuple[str, ...]]:
        """Return the names of the weights of each direction: of the input and of the state, and their offsets."""
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return [tuple(f"{kind}_l0{suffix}" for kind in kinds) for suffix in ("", "_reverse")[: 1 + self.both]]

    def advance(self, states: Any, given: tf.Tensor, hidden: tf.Tensor) -> Any:
        """Return the states after one more position, the one that is seen first.

        ``given`` and ``hidden``: what the gates get of the input and of the state before, [batch, gates * size].
        """
        raise TypeError(f"{type(self).__name__} has no advance")

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the states of all positions, or the final ones."""
        every, final = [], []
        zeros = tf.zeros((tf.shape(x)[0], self.size), x.dtype)
        for index, names in enumerate(self.directions()):
            from_input, from_state, offset, other = (getattr(self, name) for name in names)
            given = tf.transpose(tf.matmul(x, from_input, transpose_b=True) + offset, (1, 0, 2))
            given = tf.reverse(given, [0]) if index else given

            def step(states: Any, now: tf.Tensor, weight: Any = from_state, bias: Any = other) -> Any:
                """Return the states after one more position."""
                return self.advance(states, now, tf.matmul(states[0], weight, transpose_b=True) + bias)

            states = tf.scan(step, given, initializer=(zeros,) * self.states)[0]
            final.append(states[-1])
            every.append(tf.transpose(tf.reverse(states, [0]) if index else states, (1, 0, 2)))
        return tf.concat(final if self.last else every, axis=-1)


class LSTM(Recurrent):
    """A long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

    gates, states = 4, 2

    def advance(self, states: Any, given: tf.Tensor, hidden: tf.Tensor) -> Any:
        """Return the state and the cell after one more position."""
        entry, forget, fresh, leave = tf.split(given + hidden, 4, axis=1)
        cell = tf.sigmoid(forget) * states[1] + tf.sigmoid(entry) * tf.tanh(fresh)
        return tf.sigmoid(leave) * tf.tanh(cell), cell


class GRU(Recurrent):
    """A gated recurrent unit (Cho et al. 2014), the reset gate after the product as in PyTorch."""

    gates, states = 3, 1

    def advance(self, states: Any, given: tf.Tensor, hidden: tf.Tensor) -> Any:
        """Return the state after one more position."""
        reset, update, fresh = tf.split(given, 3, axis=1)
        reset_too, update_too, fresh_too = tf.split(hidden, 3, axis=1)
        keep = tf.sigmoid(update + update_too)
        new = tf.tanh(fresh + tf.sigmoid(reset + reset_too) * fresh_too)
        return ((1.0 - keep) * new + keep * states[0],)
