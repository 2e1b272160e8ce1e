"""Models that keep functions which read the object that they were made in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def keep(model: Any, kind: str, layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what a model keeps as an attribute; ``layer`` is one of its own methods."""

    def inner(x: Any, times: int = 1) -> Any:
        return layer(x) if times < 1 else inner(x, times - 1)

    parts = [model]
    kinds: dict[str, Callable[[Any], Any]] = {
        "itself": lambda x: model.first(x),
        "method": lambda x: layer(x),
        "listed": lambda x: parts[0].first(x),
        "nested": lambda x: inner(x),
        "partial": partial(lambda times, x: model.first(x) * times, 1),
        "bound": layer,
    }
    return kinds[kind]


def make_torch(kind: str) -> Any:
    """Return a module of PyTorch."""
    import torch

    class Keeper(torch.nn.Module):
        """A product with a weight, reached through a function that it keeps."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, 1))
            self.act = [keep(self, kind, self.first)]

        def first(self, x: torch.Tensor) -> torch.Tensor:
            """Return the product."""
            return x @ self.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return the product."""
            return self.act[0](x)

    return Keeper()


def make_tensorflow(kind: str) -> Any:
    """Return a module of TensorFlow."""
    import tensorflow as tf

    class Keeper(tf.Module):
        """A product with a weight, reached through a function that it keeps."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.ones((2, 1)))
            self.act = (keep(self, kind, self.first),)

        def first(self, x: tf.Tensor) -> tf.Tensor:
            """Return the product."""
            return x @ self.weight

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            """Return the product."""
            return self.act[0](x)

    return Keeper()
