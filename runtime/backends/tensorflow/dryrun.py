"""The dry run: the graph of every active set is made before the first step, which is the one time it is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import tensorflow as tf

from compiler.ir.instructions import Evaluate
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.compat import watched_recomputing
from runtime.backends.tensorflow.execution import ERRORS, Loaded
from runtime.backends.tensorflow.keras_terms import find_adding, tell_added
from runtime.backends.tensorflow.library.modules import KerasLayer, named_variables, parts_of
from runtime.backends.tensorflow.slots import copies_of
from runtime.backends.tensorflow.untouched import traced
from runtime.codegen.resources import find_instructions
from runtime.engine.errors import diagnose
from runtime.engine.load import find_span
from runtime.engine.recomputed import find_checkpoints, find_unexpected

GRADIENTS = ("gradients", "unfrozen_gradients")
"""The library's functions that take gradients."""


def run_dry(loaded: Loaded, spec: GraphSpec, seed: int) -> tuple[Diagnostic, ...]:
    """Return every problem that making the graphs of a built module shows; nothing is computed, nothing is changed."""
    models, recomputing, adding = loaded.names["MODELS"], set[str](), dict[str, str]()
    found: list[Diagnostic] = []
    with traced(seed), _noting(recomputing, adding, loaded):
        for graph in loaded.names["FUNCTIONS"].values():
            try:
                graph.traced.get_concrete_function()
            except Exception as error:
                found.append(diagnose(error, loaded, spec, ERRORS))
    unexpected = find_unexpected(recomputing, loaded.program, spec)
    added = tell_added(adding, loaded.program, spec)
    return tuple(dict.fromkeys((*found, *find_kept(models, spec), *unexpected, *added)))


@contextmanager
def _noting(recomputing: set[str], adding: dict[str, str], loaded: Loaded) -> Iterator[None]:
    """Note the models that `tf.recompute_grad` or `add_loss` is met in, while graphs are made inside."""
    names = {id(model): name for name, model in loaded.names["MODELS"].items()}
    call = loaded.names.get("call_model")

    def called(model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a model."""
        assert call is not None
        with watched_recomputing(lambda: nullcontext(recomputing.add(names[id(model)]))):
            result = call(model, *args, **kwargs)
        adding.update({names[id(model)]: layer for layer in find_adding(model)})
        return result

    evaluated = [each for each in find_instructions(loaded.program) if isinstance(each, Evaluate)]
    users = [loaded.emitted.names.imported(path) for each in evaluated for path in each.functions]
    watched = {name: loaded.names[name] for name in (*users, *GRADIENTS) if name in loaded.names}
    others = {
        name: _reread(each, recomputing, loaded) if name in GRADIENTS else keep_apart(each)
        for name, each in watched.items()
    }
    loaded.names.update(others if call is None else {**others, "call_model": keep_apart(called)})
    try:
        yield
    finally:
        loaded.names.update(watched if call is None else {**watched, "call_model": call})


def _reread(differentiate: Callable[..., Any], recomputing: set[str], loaded: Loaded) -> Callable[..., Any]:
    """Return a function that takes gradients, with eyes on the weights that they read: a class may read its own anew.

    So do `tf.custom_gradient`s that use a weight in their gradient.
    """
    again = find_checkpoints(loaded.program) | {model.name for model in loaded.program.models if model.recomputes}
    handled = {
        name: [id(own.handle) for _, part, _ in named_variables(each) for own in copies_of(part)]
        for name, each in loaded.names["MODELS"].items()
    }
    expected = {each for name in again & handled.keys() for each in handled[name]}  # tied ones are others' as well
    owners = {each: name for name, found in handled.items() for each in found if each not in expected}

    @functools.wraps(differentiate)
    def called(*args: Any, **kwargs: Any) -> Any:
        """Take gradients."""
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        found = differentiate(*args, **kwargs)
        handles = {inner.name: id(outer) for outer, inner in graph.captures}
        reads = (each for each in graph.get_operations()[before:] if each.type == "ReadVariableOp")
        recomputing.update(owners[at] for each in reads if (at := handles.get(each.inputs[0].name)) in owners)
        return found

    return called


def find_kept(models: Mapping[str, Any], spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS215) for every tensor of a graph that a forward left in its model: no step would find it."""
    for name, model in models.items():
        for path in _find_symbolic(model, "", set()):
            yield Diagnostic(
                code="GS215",
                message=f"a forward of model '{name}' replaces its attribute '{path}' by a new tensor",
                span=find_span(spec, name),
                help=f"keep it in a variable: `self.{path}.assign(...)`; graphs, averages and copies find that",
            )


def _find_symbolic(owner: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Yield the paths of tensors of a graph among the attributes of a model and its parts."""
    if id(owner) in seen or isinstance(owner, (str, int, float, type)):
        return
    seen.add(id(owner))
    own = vars(owner) if isinstance(owner, (tf.Module, KerasLayer)) else {}
    yield from (f"{path}{name}" for name, value in own.items() if tf.is_symbolic_tensor(value))
    for name, part in parts_of(owner):
        yield from _find_symbolic(part, f"{path}{name}.", seen)


def keep_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's function so that its results stay separate: TensorFlow stacks several where it expects one tensor.

    The user's code gets them unchanged.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        result = function(*map(_joined, args), **{name: _joined(each) for name, each in kwargs.items()})
        return _made(find_apart(type(result)), result) if isinstance(result, (tuple, list)) else result

    return called


@functools.cache
def find_apart(kind: type) -> type:
    """Return a type of sequences like another, which TensorFlow does not convert to tensors."""
    apart = type(kind.__name__, (kind, Apart), {})

    def refuse_stacking(value: Any, *_: object, **__: object) -> NoReturn:
        """Refuse to convert several results to a tensor."""
        raise TypeError(f"must be Tensor, not {'list' if isinstance(value, list) else 'tuple'}")

    tf.register_tensor_conversion_function(apart, refuse_stacking, priority=0)
    return apart


class Apart:
    """A sequence that TensorFlow does not stack."""


def _joined(value: Any) -> Any:
    """Return a result of a user's call in its original type."""
    return _made(type(value).__base__, value) if isinstance(value, Apart) else value


def _made(kind: Any, value: Any) -> Any:
    """Return a sequence, or a named tuple, as another type."""
    return getattr(kind, "_make", kind)(value)
