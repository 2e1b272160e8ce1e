"""Layers that map vectors to vectors: linear, embedding."""

from __future__ import annotations

import tensorflow as tf

from runtime.backends.tensorflow.library.layers import Layer


class Linear(Layer):
    """x W^T + b along the last axis."""

    layout = "first"
    exact = False

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features, self.has_bias = in_features, out_features, bias

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [out, in] and bias."""
        self.weight = self.add(path, "weight", (self.out_features, self.in_features), dtype)
        if self.has_bias:
            self.bias = self.add(path, "bias", (self.out_features,), dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return [..., out] of [..., in]."""
        rows = x if x.shape.rank == 2 else tf.reshape(x, (-1, self.in_features))
        y = tf.matmul(self.operand(rows), self.operand(self.weight), transpose_b=True)
        y = tf.nn.bias_add(y, self.operand(self.bias)) if self.has_bias else y
        return y if x.shape.rank == 2 else tf.reshape(y, tf.concat((tf.shape(x)[:-1], (self.out_features,)), axis=0))


class Embedding(Layer):
    """A row of the weight for every index."""

    layout = "first"

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [count, size]."""
        self.weight = self.add(path, "weight", (self.num_embeddings, self.embedding_dim), dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the rows along a new last axis."""
        return tf.gather(self.weight, x)
