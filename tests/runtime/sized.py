"""Models that fold their batch, and so want batches of a multiple."""

from __future__ import annotations


def Torch(multiple: int):  # noqa: N802
    """Return a module of PyTorch."""
    import torch

    class Folding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x.view(-1, multiple, 4)).reshape(-1, 4)

    return Folding()


def TensorFlow(multiple: int):  # noqa: N802
    """Return a layer of Keras."""
    import keras
    import tensorflow as tf

    class Folding(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, x):
            return tf.reshape(self.dense(tf.reshape(x, (-1, multiple, 4))), (-1, 4))

    return Folding()
