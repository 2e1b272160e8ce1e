"""What a look at a model must leave as it was: its variables, and the random states of Python, NumPy and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.compat import quiet
from runtime.backends.tensorflow.library.initial import forked_seed
from runtime.backends.tensorflow.library.modules import generators_of, named_variables


@contextmanager
def untouched(seed: int) -> Iterator[None]:
    """Seed the global random numbers inside, and give back their states; keep logs away from the terminal.

    Seeds of TensorFlow's own random operations, ``tf.random.normal``, are fixed while they are traced.
    """
    with quiet(), forked_seed(seed, "trace"):
        yield


@contextmanager
def unwritten(models: Mapping[str, Any]) -> Iterator[None]:
    """Restore the variables of models on the way out; those that are made inside get what they were made with."""
    before: list[tuple[Any, tf.Tensor]] = []

    def keep(make: Callable[..., Any], **options: Any) -> Any:
        """Make a variable, and keep what it holds."""
        variable = make(**options)
        before.append((variable, variable.read_value()))
        return variable

    for model in models.values():
        known = [*(variable for _, variable, _ in named_variables(model)), *generators_of(model)]
        before.extend((variable, variable.read_value()) for variable in known)
    try:
        with tf.variable_creator_scope(keep):
            yield
    finally:
        for variable, value in before:
            variable.assign(value)
