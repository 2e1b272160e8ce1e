"""Models: given ones checked, parameters they share, variables made by a call, types in which they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.declare.precision import Compute
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.modules import KerasLayer, KerasModel
from runtime.backends.tensorflow.slots import Naming, buffers, parameters
from runtime.backends.tensorflow.tensors import DTYPES
from runtime.engine import user_models as users
from runtime.engine.load import find_span
from runtime.engine.replicas import DECLARE, Reducer
from runtime.problems import problem

MIRRORED = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
"""The strategies whose replicas take steps."""
EXPECTED = "a model or layer of Keras, or a tf.Module"


def check_given(given: Mapping[str, object], program: Program, spec: GraphSpec) -> dict[str, Any]:
    """Return the given models; raise SpecError (GS208) for names the spec lacks and for what is no model."""
    return users.check_given(given, program, spec, (tf.Module, KerasLayer), EXPECTED)


def find_strangers(models: Mapping[str, Any], spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for everything that a class made which is no model."""
    for name, model in models.items():
        if not isinstance(model, (tf.Module, KerasLayer)):
            message = f"the class of model '{name}' makes {type(model).__name__}, expected {EXPECTED}"
            yield Diagnostic(code="GS208", message=message, span=find_span(spec, name))


def find_undeclared_ties(models: Mapping[str, Any], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS213) for every two models that share variables in a way the spec does not say."""
    memories = {
        name: users.Memory(
            parameters={key: id(each) for key, each in parameters(model).items()},
            buffers={key: id(each) for key, each in buffers(model).items()},
        )
        for name, model in models.items()
    }
    return users.find_undeclared_ties(memories, program, spec)


def find_other_types(models: Mapping[str, Any], dtype: tf.DType, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model with parameters that the step cannot train as they are."""
    found = {name: {key: each.dtype.name for key, each in parameters(model).items()} for name, model in models.items()}
    return users.find_other_types(found, dtype.name, spec)


def is_open(model: Any) -> bool:
    """Return whether a model may still make variables: a layer of Keras that was never called, or code of one's own."""
    return not isinstance(model, Naming) and (not isinstance(model, KerasLayer) or is_unbuilt(model))


def is_unbuilt(model: Any) -> bool:
    """Return whether some layer of Keras in a model waits for its first call."""
    return any(not layer.built for layer in layers_of(model, set()))


def find_reducers(model: Any, strategy: tf.distribute.Strategy | None) -> Iterator[Reducer]:
    """Yield every variable of a model that was not made under the strategy of a step; None where it has none."""
    for name, variable in (*parameters(model).items(), *buffers(model).items()):
        own = getattr(variable, "distribute_strategy", None)  # None for plain variables, which lack it
        if own is strategy:
            continue
        if own is None:
            yield Reducer(
                what=f": its variable '{name}' was made outside of the {type(strategy).__name__} of the step",
                why="so it is on one device",
                remedy="make the model inside of `strategy.scope()`, and build the step there",
            )
        elif strategy is None:
            yield Reducer(
                what=f": its variable '{name}' was made under {type(own).__name__} ({type(variable).__name__})",
                why="a step is no replica of a strategy, and reduces no gradients",
                remedy=f"make the model outside of `strategy.scope()`; {DECLARE}",
            )
        else:
            yield Reducer(
                what=f": its variable '{name}' was made under another {type(own).__name__} than that of the step",
                why="so the replicas of the step do not have it",
                remedy="make the model inside of the `strategy.scope()` in which the step is built",
            )


def find_scope(spec: GraphSpec) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope a step is built, None outside of any.

    Raises SpecError (GS273) where the spec declares no replicas, or the strategy does not run them as a step needs.
    """
    if not tf.distribute.has_strategy():
        return None
    strategy = tf.distribute.get_strategy()
    title = type(strategy).__name__
    if not spec.is_replicated:
        message = f"`build` is called inside the scope of {title}: a step is no replica of a strategy"
        raise problem("GS273", message, help=f"build the step outside of `strategy.scope()`; {DECLARE}")
    if not isinstance(strategy, MIRRORED):
        names = " or ".join(each.__name__ for each in MIRRORED)
        message = f"`build` is called inside the scope of {title}, whose replicas do not each have all weights"
        raise problem("GS273", message, help=f"take a {names}")
    return strategy


@runtime_checkable
class KerasComputing(Protocol):
    """The interface of a Keras layer that has a compute type."""

    compute_dtype: str
    variables: Any


@runtime_checkable
class Computing(Protocol):
    """The interface of a model of built-in layers with a compute type, in any emitted module."""

    compute: Any

    def compute_in(self, dtype: Any) -> None:
        """Compute products in a type from now on."""


def computing(compute: Compute) -> tf.DType | None:
    """Return the type in which a model computes; None where it is that of its parameters."""
    return None if compute == "float32" else DTYPES[compute]


def describe_others(models: Mapping[str, Any], program: Program, dtype: tf.DType) -> Iterator[str]:
    """Yield a note on every model that does not compute in the type of the spec, but as its code does."""
    for declared in program.models:
        wanted = computing(declared.compute)
        if wanted is not None and dtype != tf.float64 and wanted.name not in _find_types(models[declared.name]):
            yield (
                f"'{declared.name}' computes as written, not in {declared.compute}: `precision` is for "
                "`layers:` and for layers of Keras that `class:` makes without a type of their own"
            )


def _find_types(model: Any) -> frozenset[str]:
    """Return the types in which parts of a model compute, as far as they declare them."""
    if isinstance(model, Computing):
        return frozenset({model.compute.name} if model.compute is not None else ())
    layers = (each for each in layers_of(model, set()) if isinstance(each, KerasComputing) and each.variables)
    return frozenset(each.compute_dtype for each in layers if not (isinstance(each, KerasModel) and each.layers))
