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


def find_reducers(model: Any) -> Iterator[Reducer]:
    """Yield every variable of a model that was made under a strategy."""
    for name, variable in (*parameters(model).items(), *buffers(model).items()):
        strategy = getattr(variable, "distribute_strategy", None)  # None for plain variables, which lack it
        if strategy is not None:
            yield Reducer(
                what=f": its variable '{name}' was made under {type(strategy).__name__} ({type(variable).__name__})",
                why="a step is no replica of a strategy, and reduces no gradients",
                remedy=f"make the model outside of `strategy.scope()`; {DECLARE}",
            )


def refuse_scope() -> None:
    """Raise SpecError (GS273) where a step is built inside the scope of a strategy, which would make its variables."""
    if tf.distribute.has_strategy():
        strategy = type(tf.distribute.get_strategy()).__name__
        message = f"`build` is called inside the scope of {strategy}: a step is no replica of a strategy"
        raise problem("GS273", message, help=f"build the step outside of `strategy.scope()`; {DECLARE}")


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
