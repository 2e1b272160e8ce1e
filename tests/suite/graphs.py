"""Whether TensorFlow rewrites graphs before it first runs them, as it does for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def rewrite_graphs(is_on: bool) -> None:
    """Let TensorFlow's passes over whole graphs (Grappler) run, or not."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_on})


@contextmanager
def rewriting() -> Iterator[None]:
    """Let them run in a block: what is built and first called there runs as users run it."""
    rewrite_graphs(True)
    try:
        yield
    finally:
        rewrite_graphs(False)
