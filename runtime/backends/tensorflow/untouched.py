"""State that observing a model must not change: variables, and the random states of Python, NumPy and TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager.context import context as eager_context

from runtime.backends.tensorflow.library.initial import forked_seed
from runtime.backends.tensorflow.library.modules import generators_of, named_variables
from runtime.backends.tensorflow.library.threefry import derive_key
from runtime.problems import quiet


@contextmanager
def untouched(seed: int) -> Iterator[None]:
    """Seed the global random numbers inside, then restore their states; keep logs away from the terminal."""
    with quiet(), forked_seed(seed, "trace"):
        yield


@contextmanager
def traced(seed: int) -> Iterator[None]:
    """Do the same where graphs are made and nothing runs: TensorFlow's kernels can then stay.

    ``tf.random.set_seed`` drops all of them, because some may have drawn: every live function would be optimized
    again, and would restart its random numbers. Seeds of random operations are fixed while they are traced.
    """
    low, high = derive_key(seed, "construct", "trace")
    tensorflow = vars(eager_context())
    kept = random.getstate(), np.random.get_state(), {key: tensorflow.get(key) for key in ("_seed", "_rng")}
    random.seed(low | (high << 32))
    np.random.seed(low)
    tensorflow.update(_seed=low, _rng=random.Random(low))
    try:
        with quiet():
            yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        tensorflow.update(kept[2])


@contextmanager
def unwritten(models: Mapping[str, Any]) -> Iterator[None]:
    """Restore the variables of models on the way out; those that are made inside get their initial values."""
    before: list[tuple[Any, tf.Tensor]] = []

    def keep(make: Callable[..., Any], **options: Any) -> Any:
        """Make a variable, and keep its initial value."""
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
