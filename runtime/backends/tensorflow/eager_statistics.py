"""Running statistics of BatchNorm, computed anew for a model whose weights no training pass has had."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf


@runtime_checkable
class Traced(Protocol):
    """The interface of a step function that is a graph (emitted modules have classes of their own)."""

    graph: Any

    def begin(self) -> None:
        """Trace again at the next call."""
        ...

    def run(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run the function as Python."""
        ...


@contextmanager
def recomputing(layers: Iterable[Any], graphs: Iterable[object]) -> Generator[Callable[[], int | None]]:
    """Let the statistics of BatchNorm layers become the means over the calls inside.

    Only these layers are in train mode, so that nothing is drawn. The steps run as Python: graphs have been traced for
    evaluation. A layer of Keras takes the variance as Keras does, with bias; the library's, like PyTorch's, without.
    Yields a function that returns in how many calls the layer that ran least took part; None where there are no layers.
    After an error the statistics are those of before.
    """
    norms = [each for each in layers if any("BatchNorm" in base.__name__ for base in type(each).__mro__)]
    names = [
        ("running_mean", "running_var") if hasattr(each, "running_mean") else ("moving_mean", "moving_variance")
        for each in norms
    ]
    means, variances = (
        [getattr(each, pair[place]) for each, pair in zip(norms, names, strict=True)] for place in (0, 1)
    )
    tracked = [each.num_batches_tracked for each in norms if hasattr(each, "num_batches_tracked")]
    kept = [(variable, tf.identity(variable)) for variable in (*means, *variances, *tracked)]
    counts = {id(each): 0 for each in norms}

    def call(layer: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a layer in training, with a momentum that makes its statistics the means so far."""
        counts[id(layer)] += 1
        share = 1 / counts[id(layer)]
        own, layer.momentum = layer.momentum, share if hasattr(layer, "running_mean") else 1 - share
        try:
            if hasattr(layer, "running_mean"):
                return type(layer).call(layer, x, True, args[-1])
            return type(layer).call(layer, x, **{**kwargs, "training": True})
        finally:
            layer.momentum = own

    traced = [(each, each.graph) for each in graphs if isinstance(each, Traced)]
    try:
        for variable in (*means, *tracked):
            variable.assign(tf.zeros_like(variable))
        for variable in variances:
            variable.assign(tf.ones_like(variable))
        for layer in norms:
            vars(layer)["call"] = partial(call, layer)
        for each, _ in traced:
            each.graph = each.run
        yield lambda: min(counts.values(), default=None)
    except BaseException:
        for variable, value in kept:
            variable.assign(value)
        raise
    finally:
        for layer in norms:
            vars(layer).pop("call", None)
        for each, graph in traced:
            each.graph = graph
