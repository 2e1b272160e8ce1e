"""Models of any kind, the library's, Keras's or plain modules: their variables, calls, generators, inner results."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf


@runtime_checkable
class Named(Protocol):
    """A model that names its variables: the library's, of whichever emitted module."""

    def named_parameters(self) -> dict[str, tf.Variable]:
        """Return the variables that are trained, by name."""
        ...

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Return the other variables, by name."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A layer that passes its result to a hook: one of the library, from any emitted module."""

    seen: Any

    def run(self, x: tf.Tensor, training: bool, last: bool) -> tuple[tf.Tensor, bool]:
        """Return the result, and its layout."""
        ...


@runtime_checkable
class KerasVariable(Protocol):
    """What a variable of Keras has: it holds one of TensorFlow's."""

    value: Any
    trainable: bool
    path: str


@runtime_checkable
class KerasLayer(Protocol):
    """What a layer or model of Keras has."""

    name: Any
    variables: Any

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result."""

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        """Make a variable."""


@runtime_checkable
class KerasModel(KerasLayer, Protocol):
    """What a Keras model has in addition."""

    layers: Any


@runtime_checkable
class KerasSeeds(Protocol):
    """What a generator of Keras has."""

    state: Any

    def next(self, ordered: bool = True) -> Any:
        """Return the next seed."""


def walk(owner: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield (path, variable or generator) of all that a model is made of, in the order of its attributes, once each."""
    if id(owner) in seen or isinstance(owner, (str, int, float, type)):
        return
    seen.add(id(owner))
    if isinstance(owner, (tf.Variable, KerasVariable, KerasSeeds, tf.random.Generator)):
        yield path, owner
    else:
        for name, part in parts_of(owner):
            yield from walk(part, f"{path}.{name}" if path else name, seen)


def parts_of(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named parts of a container, a module or a layer; nothing else has any."""
    if isinstance(owner, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(owner))
    elif isinstance(owner, Mapping):
        yield from ((str(key), part) for key, part in owner.items())
    elif isinstance(owner, tf.Module):
        yield from ((name, part) for name, part in vars(owner).items() if not name.startswith("_self"))
    elif isinstance(owner, KerasLayer):
        yield from keras_parts(owner)


def keras_parts(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a Keras layer, the layers of a model by place, then the variables found in neither."""
    yield from ((name, part) for name, part in vars(layer).items() if not name.startswith("_"))
    if isinstance(layer, KerasModel):
        yield from ((str(index), part) for index, part in enumerate(layer.layers))
    for variable in layer.variables:
        if variable.name != "seed_generator_state":
            within = variable.path.rpartition(f"{layer.name}/")[2]
            yield within.replace("/", "."), variable


def named_variables(model: Any) -> Iterator[tuple[str, tf.Variable, bool]]:
    """Yield name, variable and whether it is trained, of all variables of a model but the states of generators."""
    if isinstance(model, Named):
        yield from ((name, variable, True) for name, variable in model.named_parameters().items())
        yield from ((name, variable, False) for name, variable in model.named_buffers().items())
        return
    for path, part in walk(model, "", set()):
        if isinstance(part, (tf.Variable, KerasVariable)):
            yield path, part if isinstance(part, tf.Variable) else part.value, bool(part.trainable)


def named_parameters(model: Any) -> dict[str, tf.Variable]:
    """Return the variables of a model that are trained, by name."""
    return {name: variable for name, variable, trained in named_variables(model) if trained}


def named_buffers(model: Any) -> dict[str, tf.Variable]:
    """Return the other variables of a model, by name."""
    return {name: variable for name, variable, trained in named_variables(model) if not trained}


def parameters_of(model: Any) -> list[tf.Variable]:
    """Return the variables of a model that are trained."""
    return list(named_parameters(model).values())


def buffers_of(model: Any) -> list[tf.Variable]:
    """Return the other variables of a model."""
    return list(named_buffers(model).values())


def generators_of(model: Any) -> list[tf.Variable]:
    """Return the states of the generators that a user's model draws from."""
    states = [part.state for _, part in walk(model, "", set()) if isinstance(part, (KerasSeeds, tf.random.Generator))]
    return [state if isinstance(state, tf.Variable) else state.value for state in states]


def call_model(model: Any, /, *args: Any, training: bool, method: str | None = None, **kwargs: Any) -> Any:
    """Call a model, or a method of it; ``training`` is passed if it has such an argument.

    What it gives are values: a variable among them is read now, before any later write.
    """
    called = model if method is None else getattr(model, method)
    described = model.call if method is None and isinstance(model, KerasLayer) else called
    if "training" in inspect.signature(described).parameters:
        kwargs["training"] = training
    return read_values(called(*args, **kwargs))


def call_with(
    model: Any, weights: Sequence[tf.Tensor], /, *args: Any, training: bool, method: str | None = None, **kwargs: Any
) -> Any:
    """Call a model, or a method of it, with weights in place of its own parameters, and with its own buffers.

    Raises TypeError where none can be put in the place of a parameter.
    """
    given = {id(own): weight for own, weight in zip(parameters_of(model), weights, strict=True)}
    held: list[Any] = [part for _, part in walk(model, "", set()) if isinstance(part, KerasVariable)]
    pairs = [(variable, given.pop(id(variable.value))) for variable in held if id(variable.value) in given]
    with put_in_place(model, given):
        if not held:
            return call_model(model, *args, training=training, method=method, **kwargs)
        with tf.keras.StatelessScope(state_mapping=pairs) as scope:
            result = call_model(model, *args, training=training, method=method, **kwargs)
    for buffer in (variable for variable in held if not variable.trainable):
        written = scope.get_current_value(buffer)
        if written is not None:
            buffer.assign(written)
    return result


@contextmanager
def put_in_place(model: Any, weights: Mapping[int, tf.Tensor]) -> Iterator[None]:
    """Put tensors in the place of the variables of a module, by their identities.

    Raises TypeError where a variable is in a list or a dictionary, and for a method that keeps what it was traced with.
    """
    modules = (model, *model.submodules) if isinstance(model, tf.Module) and weights else ()
    places = [(vars(each), name, part) for each in modules for name, part in vars(each).items() if id(part) in weights]
    if weights.keys() - {id(part) for _, _, part in places}:
        raise TypeError("a derived model needs every parameter of a module as an attribute of its own, not in a list")
    for name, part in (each for module in modules for each in inspect.getmembers_static(type(module))):
        if isinstance(part, tf.types.experimental.GenericFunction):
            raise TypeError(f"a derived model cannot call {name!r}, which is a tf.function: leave out the decorator")
    try:
        for attributes, name, part in places:
            attributes[name] = weights[id(part)]
        yield
    finally:
        for attributes, name, part in places:
            attributes[name] = part


def checkpointed(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what a call gives without keeping its inner results: a gradient through it runs it again.

    Gradients can be differentiated again, which those of ``tf.recompute_grad`` cannot.
    """
    given = {**dict(enumerate(args)), **kwargs}
    tensors = {key: value for key, value in given.items() if tf.is_tensor(value)}

    def called(*values: tf.Tensor) -> Any:
        """Call with other values of the tensors."""
        changed = given | dict(zip(tensors, values, strict=True))
        return call(*(changed[place] for place in range(len(args))), **{name: changed[name] for name in kwargs})

    @tf.custom_gradient
    def recomputed(*values: tf.Tensor) -> Any:
        """Return the result, and its gradients by the tensors and by the variables that were read."""

        def differentiate(*upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            """Run the call again, once the gradients of its results are there, and return those of the rest."""
            again = [not_before(value, upstream) for value in values]
            with tf.GradientTape() as tape:
                tape.watch([*(value for value in again if value.dtype.is_floating), *variables])
                result = called(*again)
            found = tape.gradient(result, [*again, *variables], list(upstream))
            return found[: len(again)], found[len(again) :]

        return called(*values), differentiate

    return recomputed(*tensors.values())


def not_before(value: tf.Tensor, others: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return a value as it is once the first of others is there: what is made of it cannot be taken for what was."""
    if not (value.dtype.is_floating or value.dtype.is_integer):
        return value
    first = tf.reduce_max(tf.reshape(others[0], [-1])[:1])
    return value + tf.cast(tf.where(tf.equal(first, first), -0.0, 0.0), value.dtype)


@contextmanager
def kept_buffers(*models: Any) -> Iterator[None]:
    """Undo what is written to the buffers of models inside: a gradient that recomputes forwards writes them again."""
    buffers = [buffer for model in models for buffer in buffers_of(model)]
    before = [tf.identity(buffer) for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            buffer.assign(value)


def read_values(result: Any) -> Any:
    """Return a result with its variables read."""
    if isinstance(result, Mapping):
        return {name: read_values(part) for name, part in result.items()}
    if isinstance(result, (list, tuple)):
        kind = list if isinstance(result, list) else tuple
        return getattr(type(result), "_make", kind)(map(read_values, result))
    variable = result.value if isinstance(result, KerasVariable) else result
    return tf.convert_to_tensor(variable) if isinstance(variable, tf.Variable) else result


class Taps(dict[str, Any]):
    """What inner layers of a model gave in its last call, by their paths."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[str, Sequence[tf.GradientTape]] = {}

    def begin(self, layer: str, *tapes: tf.GradientTape) -> None:
        """Let tapes watch what a layer gives in the next call, as soon as it is there."""
        self.begun[layer] = tapes

    def keep(self, layer: str, result: Any) -> Any:
        """Keep the result of a layer, and return it for the model to continue with."""
        for tape in self.begun.pop(layer, ()):
            tape.watch(result)
        self[layer] = result
        return result


def watch(model: Any, *layers: str) -> Taps:
    """Return a dictionary in which every call of a model leaves what its inner layers gave.

    Raises TypeError for a layer that is neither the library's nor Keras's.
    """
    seen = Taps()
    for path in layers:
        layer = functools.reduce(inner, path.split("."), model)
        keep = functools.partial(seen.keep, path)
        if isinstance(layer, Watched):
            layer.seen = keep
        elif isinstance(layer, KerasLayer):
            layer.call = watched(layer.call, keep)
        else:
            raise TypeError(f"{path}: only the results of layers can be taken, this is a {type(layer).__name__}")
    return seen


def inner(owner: Any, name: str) -> Any:
    """Return a part of a model by its name or number."""
    if not name.isdigit():
        return getattr(owner, name)
    return owner[int(name)] if isinstance(owner, Sequence) else owner.layers[int(name)]


def watched(call: Callable[..., Any], keep: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a call that leaves its result with ``keep``."""

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        """Call, and leave the result."""
        return keep(call(*args, **kwargs))

    return called


def widened(value: Any) -> Any:
    """Return results of a call with those of lower precision as float32, all others as they are."""
    if isinstance(value, Mapping):
        return {name: widened(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map(widened, value))
    is_low = tf.is_tensor(value) and value.dtype in (tf.float16, tf.bfloat16)
    return tf.cast(value, tf.float32) if is_low else value


def result(value: Any, name: str) -> Any:
    """Return what a call gave, or the one result of that name where it gave several."""
    has_parts = isinstance(value, (Mapping, tuple, list)) or hasattr(value, name)
    return results(value, name)[0] if has_parts and not tf.is_tensor(value) else value


def results(value: Any, *names: str) -> tuple[Any, ...]:
    """Return several results of a call in order; a dictionary, a named tuple or an object gives them by name."""
    if isinstance(value, Mapping):
        found = [value.get(name) for name in names]
    elif hasattr(value, "__len__") and not set(names) <= set(getattr(value, "_fields", ())):
        if len(value) != len(names):
            raise ValueError(f"the call gave {len(value)} results instead of {len(names)} ({', '.join(names)})")
        return tuple(value)
    else:
        found = [getattr(value, name, None) for name in names]
    missing = [name for name, each in zip(names, found, strict=True) if each is None]
    if missing:
        raise ValueError(f"the call gave a {type(value).__name__} without {missing[0]!r}")
    return tuple(map(read_values, found))


def detached(values: Sequence[tf.Tensor | None]) -> tuple[tf.Tensor | None, ...]:
    """Return values as constants for every gradient; a gradient that is absent stays so."""
    return tuple(None if value is None else tf.stop_gradient(value) for value in values)


@contextmanager
def made_in(dtype: tf.DType, compute: tf.DType | None = None) -> Iterator[None]:
    """Give the layers of Keras that are made meanwhile this type, where they do not say one.

    They compute in ``compute`` where there is such a type, unless theirs is double precision.
    """
    config = tf.keras.config
    before = config.dtype_policy()
    mixed = None if dtype == tf.float64 else compute
    config.set_dtype_policy(dtype.name if mixed is None else f"mixed_{mixed.name}")
    try:
        yield
    finally:
        config.set_dtype_policy(before)
