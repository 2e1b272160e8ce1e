"""Slots: the state of optimizers for their parameters, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import KerasVariable, named_buffers, named_parameters, walk
from runtime.backends.tensorflow.library.wrapped import RATE
from runtime.engine.contents import name_slots

BOOKS = frozenset({"_variables", "_trainable_variables"})
"""Attributes of Keras's optimizers that list variables of other attributes."""


@runtime_checkable
class Wrapping(Protocol):
    """The interface of an optimizer that wraps one of Keras (emitted modules have classes of their own)."""

    optimizer: Any


def slot_tensors(cell: str, optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[str, tf.Variable]]:
    """Yield the slots of an optimizer with their names: ``optimizers.<cell>.<slot>.<parameter>``.

    Slots of Keras's optimizers have the names of their attributes; those that belong to no parameter have no last part.
    Their learning rate is none: it comes from the spec or its schedule.
    """
    named = name_slots(optimizer.parameters, names)
    if isinstance(optimizer, Wrapping):
        places: dict[int, str] = {}
        for attribute, value in vars(optimizer.optimizer).items():
            key = attribute.lstrip("_")
            if isinstance(value, KerasVariable):
                places.setdefault(id(value), key)
            elif isinstance(value, list) and len(value) == len(named) and attribute not in BOOKS:
                places.update({id(each): f"{key}.{name}" for name, each in zip(named, value, strict=True)})
        kept = [(at, each) for at, each in enumerate(optimizer.optimizer.variables) if each.name != RATE]
        found = ((places.get(id(each), f"variable.{at}"), each.value) for at, each in kept)
    else:
        slots = optimizer.slots.items()
        found = ((f"{slot}.{name}", each) for slot, held in slots for name, each in zip(named, held, strict=True))
    for name, variable in found:
        yield f"optimizers.{cell}.{name}", variable


@runtime_checkable
class Naming(Protocol):
    """A model that names its variables, as the library's do (emitted modules have classes of their own)."""

    def named_parameters(self) -> dict[str, tf.Variable]:
        """Return what is trained."""
        ...

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Return the rest."""
        ...


def flagged(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of Keras in a model by name: only theirs can be frozen or unfrozen later."""
    if not isinstance(model, Naming):
        yield from ((path, part) for path, part in walk(model, "", set()) if isinstance(part, KerasVariable))


def parameters(model: Any) -> dict[str, tf.Variable]:
    """Return the parameters of a model by name."""
    return model.named_parameters() if isinstance(model, Naming) else named_parameters(model)


def buffers(model: Any) -> dict[str, tf.Variable]:
    """Return the other variables of a model by name."""
    return model.named_buffers() if isinstance(model, Naming) else named_buffers(model)


def copies_of(variable: Any) -> tuple[tf.Variable, ...]:
    """Return the variables of the replicas of this process, of one that a strategy has made; else the variable."""
    strategy = getattr(variable, "distribute_strategy", None)  # plain variables lack it, or have None
    return (variable,) if strategy is None else strategy.experimental_local_results(variable)
