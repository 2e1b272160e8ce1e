"""What a look at a model must leave as it was: the random states of Python, NumPy and TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime.backends.tensorflow.compat import quiet
from runtime.backends.tensorflow.library.initial import forked_seed


@contextmanager
def untouched(seed: int) -> Iterator[None]:
    """Seed the global random numbers inside, and give back their states; keep logs away from the terminal.

    Seeds of TensorFlow's own random operations, ``tf.random.normal``, are fixed while they are traced.
    """
    with quiet(), forked_seed(seed, "trace"):
        yield
