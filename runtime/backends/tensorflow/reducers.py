"""Models whose variables belong to a tf.distribute strategy: a step would train one copy of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.naming import buffers, parameters
from runtime.engine.replicas import NOT_BUILT, Reducer
from runtime.problems import problem


def find_reducers(model: Any) -> Iterator[Reducer]:
    """Yield every variable of a model that was made under a strategy."""
    for name, variable in (*parameters(model).items(), *buffers(model).items()):
        strategy = getattr(variable, "distribute_strategy", None)  # None for plain variables, which lack it
        if strategy is not None:
            yield Reducer(
                what=f": its variable '{name}' was made under {type(strategy).__name__} ({type(variable).__name__})",
                why="a step is no replica of a strategy, and reduces no gradients",
                remedy=f"make the model outside of `strategy.scope()`; {NOT_BUILT}",
            )


def refuse_scope() -> None:
    """Raise SpecError (GS273) where a step is built inside the scope of a strategy, which would make its variables."""
    if tf.distribute.has_strategy():
        strategy = type(tf.distribute.get_strategy()).__name__
        message = f"`build` is called inside the scope of {strategy}: a step is no replica of a strategy"
        raise problem("GS273", message, help=f"build the step outside of `strategy.scope()`; {NOT_BUILT}")
