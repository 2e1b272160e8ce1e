"""Models with a parameter that no call uses."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    class Torch(torch.nn.Module):
        """A linear map, and an idle parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.idle = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return x W."""
            return x @ self.weight


if find_spec("tensorflow"):
    import tensorflow as tf

    class TensorFlow(tf.Module):
        """A linear map, and an idle parameter."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.idle = (tf.Variable(tf.ones((2, 2)), name=name) for name in ("weight", "idle"))

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            """Return x W."""
            return x @ tf.cast(self.weight, x.dtype)
