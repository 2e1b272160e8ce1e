"""Making of models: given ones checked, parameters that models share, models that make their variables when called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.modules import KerasLayer
from runtime.backends.tensorflow.slots import Naming, buffers, parameters
from runtime.engine import user_models
from runtime.engine import user_models as users
from runtime.engine.load import find_span
from runtime.engine.replicas import NOT_BUILT, Reducer
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
    return user_models.find_other_types(found, dtype.name, spec)


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
                remedy=f"make the model outside of `strategy.scope()`; {NOT_BUILT}",
            )


def refuse_scope() -> None:
    """Raise SpecError (GS273) where a step is built inside the scope of a strategy, which would make its variables."""
    if tf.distribute.has_strategy():
        strategy = type(tf.distribute.get_strategy()).__name__
        message = f"`build` is called inside the scope of {strategy}: a step is no replica of a strategy"
        raise problem("GS273", message, help=f"build the step outside of `strategy.scope()`; {NOT_BUILT}")
