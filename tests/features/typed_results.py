"""Models whose calls return what names its parts: a dictionary, one as of transformers, a dataclass, a named tuple."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class Fields:
    """Results with names, of which one may be None."""

    logits: Any
    hidden: Any = None


class ModelOutput(OrderedDict):
    """Results with names, also as attributes, without those that are None."""

    def __init__(self, **parts: Any) -> None:
        super().__init__({name: part for name, part in parts.items() if part is not None})
        vars(self).update(parts)


class Pair(NamedTuple):
    """Results with names and an order, which is not that of the others."""

    hidden: Any
    logits: Any


def pack(kind: str, logits: Any, hidden: Any) -> Any:
    """Return results in one of the forms."""
    parts = {"logits": logits, "hidden": hidden}
    kinds = {"mapping": dict, "output": ModelOutput, "fields": Fields, "pair": Pair}
    plain = {"single": (logits,), "tuple": (hidden, logits), "list": [hidden, logits]}
    return plain[kind] if kind in plain else kinds[kind](**parts)


def halves(x: Any) -> Any:
    """Return two values, of one shape."""
    return x / 2, x - x / 2


def join(parts: tuple[Any, Any]) -> Any:
    """Return the sum of two values, which come as a tuple."""
    assert type(parts) is tuple
    return sum(parts)


def make_torch(kind: str, kept: bool) -> Any:
    """Return a module of PyTorch."""
    import torch

    class Model(torch.nn.Module):
        """A linear layer, and its hyperbolic tangent where ``kept``."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3, 2), 0.25))

        def forward(self, x: torch.Tensor) -> Any:
            """Return the results in the form."""
            logits = x @ self.weight.T
            return pack(kind, logits, torch.tanh(logits) if kept else None)

    return Model()


def make_tensorflow(kind: str, kept: bool) -> Any:
    """Return a module of TensorFlow."""
    import tensorflow as tf

    class Model(tf.Module):
        """A linear layer, and its hyperbolic tangent where ``kept``."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(tf.fill((3, 2), 0.25))

        def __call__(self, x: tf.Tensor) -> Any:
            """Return the results in the form."""
            logits = x @ tf.transpose(self.weight)
            return pack(kind, logits, tf.tanh(logits) if kept else None)

    return Model()
