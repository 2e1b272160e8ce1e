"""Observation of user classes: what a plan may not import to find out, seen in graphs of the forwards alone."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from compiler.types import TensorType
from runtime.backends.tensorflow.compat import watched_recomputing
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.engine.observe import find_dimension

_DRAWING = ("Random", "Rng", "Multinomial", "TruncatedNormal", "Bernoulli")
"""Parts of the names of TensorFlow's operations that draw."""
FROZEN = "random numbers of Python or NumPy are drawn"
"""What is told of a model that draws outside of TensorFlow."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What is seen of models while they are traced: which ran, which draw random numbers, and which are recomputed."""

    models: Mapping[str, Any]
    ran: set[str] = field(default_factory=set[str])
    drawing: set[str] = field(default_factory=set[str])
    unkeyed: set[str] = field(default_factory=set[str])
    """Those that draw by operations whose numbers depend on how often they ran."""
    recomputing: set[str] = field(default_factory=set[str])
    redrawing: set[str] = field(default_factory=set[str])
    """Those that draw in what is recomputed."""

    def notes(self) -> Iterator[str]:
        """Yield what there is to tell of how models draw."""
        for name in sorted(self.unkeyed):
            yield (
                f"'{name}' draws by TensorFlow's `tf.random`: a run that goes on draws other numbers; those of "
                "`keras.random` with a SeedGenerator, or of a tf.random.Generator of its own, are keyed"
            )

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the library's ``call_model`` with eyes on the graph that a call grows."""
        names = {id(model): name for name, model in self.models.items()}

        def called(model: Any, *args: Any, **kwargs: Any) -> Any:
            """Call a model, and note what it added to the graph."""
            graph = tf.compat.v1.get_default_graph()
            before, states = len(graph.get_operations()), _find_states()
            with watched_recomputing(lambda: self._recomputed(names[id(model)], graph)):
                result = call(model, *args, **kwargs)
            if states != _find_states():
                raise ValueError(FROZEN)
            self._note(names[id(model)], kwargs.get("method"), graph, before)
            return result

        return called

    @contextmanager
    def _recomputed(self, name: str, graph: Any) -> Iterator[None]:
        """Note that what a model adds to a graph inside is recomputed, and whether it draws."""
        self.recomputing.add(name)
        before = len(graph.get_operations())
        yield
        if any(part in kind for kind in find_kinds(graph, before) for part in _DRAWING):
            self.redrawing.add(name)

    def _note(self, name: str, method: str | None, graph: Any, before: int) -> None:
        """Note that a model ran, and whether what it added to a graph draws."""
        self.ran.add(name if method is None else f"{name}.{method}")
        draws = [kind for kind in find_kinds(graph, before) if any(part in kind for part in _DRAWING)]
        if draws:
            self.drawing.add(name)
        if any(not kind.startswith(("Stateless", "Stateful", "Rng")) for kind in draws):
            self.unkeyed.add(name)


def _find_states() -> tuple[object, ...]:
    """Return the states of Python's and NumPy's random numbers."""
    _, words, *rest = np.random.get_state()
    return random.getstate(), np.asarray(words).tobytes(), *rest


def find_kinds(graph: Any, before: int) -> Iterator[str]:
    """Yield the kinds of a graph's operations from one on, with those of the functions that they call."""
    pending, seen = [operation.node_def for operation in graph.get_operations()[before:]], set[str]()
    bodies: dict[str, Any] = {}
    while pending:
        node = pending.pop()
        yield node.op
        for name in (value.func.name for value in node.attr.values() if value.func.name):
            if name not in seen:
                bodies = bodies or {each.signature.name: each for each in graph.as_graph_def().library.function}
                seen.add(name)
                pending.extend(bodies[name].node_def if name in bodies else ())


def is_batch_coupled(model: Any) -> bool:
    """Return whether a model has layers that normalise over the batch in training."""
    return any("BatchNorm" in base.__name__ for layer in layers_of(model, set()) for base in type(layer).__mro__)


def call(function: Callable[..., Any], batch: Mapping[str, tf.Tensor], device: str) -> None:
    """Call a step's function as Python, in a step of number 1."""
    with tf.device(device):
        function(batch, *([tf.constant(1, tf.int64)] if _is_numbered(function) else []))


def _is_numbered(function: Callable[..., Any]) -> bool:
    """Return whether a step's function takes the number of the step."""
    return "number" in inspect.signature(function).parameters


def trace(function: Callable[..., Any], inputs: Mapping[str, tf.TensorSpec]) -> Mapping[str, Any]:
    """Return what a step's function gives for inputs of some shapes and types, symbolic tensors."""
    number = [tf.TensorSpec((), tf.int64)] if _is_numbered(function) else []
    traced = tf.function(function, input_signature=[dict(inputs), *number], autograph=False)
    return traced.get_concrete_function().structured_outputs


def find_types(seen: Mapping[int, Mapping[str, object]], batch: str) -> dict[str, TensorType]:
    """Return the types of values seen at two batch sizes; a size that grows with the batch is named by how it does."""
    (small, first), (large, second) = sorted(seen.items())
    types: dict[str, TensorType] = {}
    for name, one in first.items():
        sizes, others = _sizes(one), _sizes(second.get(name))
        if isinstance(one, tf.Tensor) and sizes is not None and others is not None and len(sizes) == len(others):
            shape = tuple(find_dimension(*pair, small, large, batch) for pair in zip(sizes, others, strict=True))
            types[name] = TensorType(shape, one.dtype.name)
    return types


def _sizes(value: object) -> tuple[int, ...] | None:
    """Return the sizes of a tensor; None for what is none, and where a graph does not know them."""
    if not isinstance(value, tf.Tensor) or not value.shape.is_fully_defined():
        return None
    return tuple(size or 0 for size in value.shape.as_list())


def merge(outputs: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Return all results of several functions by name; the first that has one counts."""
    return dict(reversed(list(_pairs(outputs))))


def _pairs(outputs: Iterable[Mapping[str, object]]) -> Iterator[tuple[str, object]]:
    """Yield names and values."""
    for each in outputs:
        yield from each.items()
