"""Private parts of TensorFlow, all in one module: written for TensorFlow 2.21 and newer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import custom_gradient

OLDEST = (2, 21)
"""The first version with everything used here."""


def is_supported() -> bool:
    """Return whether this TensorFlow is new enough."""
    major, minor = tf.__version__.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


def added_losses(layer: Any) -> list[Any]:
    """Return the losses that the last call of a Keras layer passed to ``add_loss``, without those of variables."""
    return getattr(layer, "_losses", [])


@contextmanager
def watched_recomputing(watch: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Wrap the ops that `tf.recompute_grad` adds to a graph, and adds again for a gradient, in contexts of ``watch``.

    `keras.remat` and `keras.RematScope` go the same way.
    """
    decorate = custom_gradient._graph_mode_decorator

    def decorated(function: Any, args: Any, kwargs: Any) -> Any:
        """Wrap the call of a function that is recomputed."""
        is_recomputed = function.__qualname__ == "recompute_grad.<locals>.inner"
        with watch() if is_recomputed else nullcontext():
            return decorate(function, args, kwargs)

    custom_gradient._graph_mode_decorator = decorated
    try:
        yield
    finally:
        custom_gradient._graph_mode_decorator = decorate
