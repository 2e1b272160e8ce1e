"""Models that take three features and no others."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    class Torch(torch.nn.Module):
        """A linear map."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return x W."""
            return x @ self.weight


if find_spec("tensorflow"):
    import tensorflow as tf

    class TensorFlow(tf.Module):
        """A linear map."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.ones((3, 1)))

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            """Return x W."""
            return x @ self.weight
