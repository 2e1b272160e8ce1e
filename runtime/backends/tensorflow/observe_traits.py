"""Observed traits: user classes are traced without training, and the plan is compiled again with what was seen."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from compiler import OwnTerms, Plan
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.compat import watched_recomputing
from runtime.backends.tensorflow.devices import Setting
from runtime.backends.tensorflow.execution import ERRORS, Loaded, load_program
from runtime.backends.tensorflow.keras_terms import find_terms, find_unknown_terms
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.modules import KerasLayer, Watched, call_model, inner, made_in
from runtime.backends.tensorflow.library.weights import load_weights
from runtime.backends.tensorflow.models import (
    computing,
    find_other_types,
    find_reducers,
    find_strangers,
    is_open,
    is_unbuilt,
)
from runtime.backends.tensorflow.slots import buffers
from runtime.backends.tensorflow.tensors import sample_inputs, specify_inputs
from runtime.backends.tensorflow.untouched import traced, untouched, unwritten
from runtime.codegen.resources import find_functions, find_inputs
from runtime.engine.backend import Signature
from runtime.engine.batch_sizes import Batches, find_neighbour
from runtime.engine.errors import call_checked, diagnose
from runtime.engine.load import find_span
from runtime.engine.observe import Observer, RunObservation, evaluating, find_types
from runtime.engine.recomputed import find_checkpoints
from runtime.engine.replicas import refuse_reducers
from runtime.problems import refuse
from runtime.step import StepError

_DRAWING = ("Random", "Rng", "Multinomial", "TruncatedNormal", "Bernoulli")
"""Parts of the names of TensorFlow's operations that draw."""
FROZEN = "random numbers of Python or NumPy are drawn"
"""The note on a model that draws outside of TensorFlow."""


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
        """Yield notes on how models draw."""
        for name in sorted(self.unkeyed):
            yield (
                f"'{name}' draws from TensorFlow's `tf.random`: a resumed run draws other numbers; those of "
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
            name, method = names[id(model)], kwargs.get("method")
            self.ran.add(name if method is None else f"{name}.{method}")
            draws = [kind for kind in find_kinds(graph, before) if any(part in kind for part in _DRAWING)]
            if draws:
                self.drawing.add(name)
            if any(not kind.startswith(("Stateless", "Stateful", "Rng")) for kind in draws):
                self.unkeyed.add(name)
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
    """Return whether a model has layers that normalize over the batch in training."""
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


def give_variables(
    models: Mapping[str, Any], program: Program, spec: GraphSpec, setting: Setting, batches: Batches
) -> None:
    """Call the models really, in evaluation, so that those which are open make their variables.

    Raises StepError: GS214 where the inputs have unknown sizes, GS210 and GS211 where a call fails.
    """
    called = {model.name for model in program.models if model.kind == "class"}
    waiting = [name for name, model in models.items() if name in called and is_open(model)]
    if not waiting:
        return
    inputs = sample_inputs(program, {"batch": batches.sizes[0]}, setting.dtype)

    def call_at(size: int) -> None:
        """Call the models with batches of a size."""
        sized = sample_inputs(program, {"batch": size}, setting.dtype) or {}
        with untouched(setting.seed), unwritten(models):
            evaluated = evaluating(program)
            loaded = load_program(evaluated, models)
            loaded.names["call_model"] = _making(models, evaluated, setting)
            try:
                loaded.call("build", *setting.place, models)
                for function in find_functions(evaluated):
                    given = {entry.name: sized[entry.name] for entry in find_inputs(evaluated, function)}
                    call(loaded.names[loaded.emitted.names.function(function.name)], given, setting.device)
            except Exception as error:
                found = diagnose(error, loaded, spec, ERRORS)
            else:
                return
            raise StepError([found], spec.texts())

    if inputs is not None:
        batches.attempt(call_at)
    unbuilt = [name for name in waiting if is_unbuilt(models[name])] if inputs is None else []
    if unbuilt:
        message = f"model '{unbuilt[0]}' makes its variables when it is called, and inputs are of unknown shape"
        help = "declare the shapes of all inputs, with `batch` as the only free size"
        found = Diagnostic(code="GS214", message=message, span=find_span(spec, unbuilt[0]), help=help)
        raise StepError([found], spec.texts())


def _making(models: Mapping[str, Any], program: Program, setting: Setting) -> Callable[..., Any]:
    """Return the call of a user's model, in which new layers of Keras get the types of that model.

    A given model computes as it is written.
    """
    own = [each for each in program.models if each.name in models and each.name not in setting.given]
    types = {id(models[each.name]): computing(each.compute) for each in own}

    def called(model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a model."""
        with made_in(setting.dtype, types.get(id(model))):
            return call_model(model, *args, **kwargs)

    return called


Models: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowObserver(Observer[str, tf.DType, Any]):
    """Makes models of TensorFlow, and sees what they do in graphs for two batch sizes."""

    setting: Setting
    framework = ERRORS

    def load(self, program: Program, given: Models) -> Loaded:
        """Return the executed module that makes models."""
        return load_program(program, given)

    def complete(self, plan: Plan, program: Program, models: Models) -> None:
        """Let open models make their variables.

        Raises SpecError: GS208 for what is no model, or has parameters of other types, GS273 for replicas.
        """
        refuse(find_strangers(models, plan.spec), plan.spec)
        refuse(find_other_types(models, self.setting.dtype, plan.spec), plan.spec)
        give_variables(models, program, plan.spec, self.setting, Batches.of(plan))
        strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        refuse_reducers({name: find_reducers(model, strategy) for name, model in models.items()}, plan.spec)
        refuse(find_other_types(models, self.setting.dtype, plan.spec), plan.spec)

    def load_weights(self, model: Any, name: str, path: str) -> None:
        """Read the weights of a model from a file."""
        load_weights(model, name, path)

    def observe_batch(self, plan: Plan, program: Program, models: Models, batch: int) -> RunObservation:
        """Trace a program of forwards at one batch size and its neighbour."""
        watch = Watch(models=models)
        loaded = load_program(program, models)
        seen = {size: self._trace(plan, loaded, models, watch, size) for size in (batch, find_neighbour(batch))}
        refuse(find_unknown_terms(models, plan.program, plan.spec), plan.spec)
        return RunObservation(
            types=find_types(seen, "batch"),
            ran=frozenset(watch.ran),
            drawing=frozenset(watch.drawing),
            recomputing=frozenset(watch.recomputing),
            redrawing=frozenset(watch.redrawing | watch.unkeyed & find_checkpoints(program)),
            notes=tuple(watch.notes()),
        )

    def _trace(self, plan: Plan, loaded: Loaded, models: Models, watch: Watch, size: int) -> dict[str, Signature]:
        """Return shapes and types of results at one batch size; nothing where the inputs have other free sizes."""
        setting = self.setting
        specs = specify_inputs(loaded.program, {"batch": size}, setting.dtype)
        if specs is None:
            return {}
        call_checked(loaded, plan.spec, ERRORS, "build", *setting.place, models)
        call = loaded.names.get("call_model")
        if call is not None and not watch.ran:
            loaded.names["call_model"] = watch.watched(call)
        found, problems = list[Mapping[str, object]](), list[Diagnostic]()
        with traced(setting.seed):
            for function in find_functions(loaded.program):
                inputs = {entry.name: specs[entry.name] for entry in find_inputs(loaded.program, function)}
                try:
                    found.append(trace(loaded.names[loaded.emitted.names.function(function.name)], inputs))
                except Exception as error:
                    problems.append(diagnose(error, loaded, plan.spec, ERRORS))
        if problems:  # of all functions that fail
            raise StepError(tuple(dict.fromkeys(problems)), plan.spec.texts())
        return {
            name: (tuple(size or 0 for size in each.shape.as_list()), each.dtype.name)
            for outputs in reversed(found)  # the first function that has a result counts
            for name, each in outputs.items()
            if isinstance(each, tf.Tensor) and each.shape.is_fully_defined()
        }

    def has_buffers(self, model: Any) -> bool:
        """Return whether a model has variables that no gradient trains."""
        return bool(buffers(model))

    def is_coupled(self, model: Any) -> bool:
        """Return whether a model normalizes over the batch in training."""
        return is_batch_coupled(model)

    def has_layer(self, model: Any, path: str) -> bool:
        """Return whether there is a layer at a path of a model."""
        try:
            return isinstance(functools.reduce(inner, path.split("."), model), (Watched, KerasLayer))
        except (AttributeError, IndexError):
            return False

    def find_terms(self, model: Any) -> OwnTerms:
        """Return the penalties and constraints of the layers of Keras in a model."""
        return find_terms(model)
