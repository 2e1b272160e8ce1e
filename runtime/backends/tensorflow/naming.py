"""Names of a model's variables: those that it gives itself, or the paths by which they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import KerasVariable, named_buffers, named_parameters, walk


@runtime_checkable
class Naming(Protocol):
    """A model that names its variables: the library's do (emitted modules have classes of their own)."""

    def named_parameters(self) -> dict[str, tf.Variable]:
        """Return what is trained."""
        ...

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Return the rest."""
        ...


def flagged(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of Keras in a model by name: theirs alone can be told later whether they are trained."""
    if not isinstance(model, Naming):
        yield from ((path, part) for path, part in walk(model, "", set()) if isinstance(part, KerasVariable))


def parameters(model: Any) -> dict[str, tf.Variable]:
    """Return the parameters of a model by name."""
    return model.named_parameters() if isinstance(model, Naming) else named_parameters(model)


def buffers(model: Any) -> dict[str, tf.Variable]:
    """Return the other variables of a model by name."""
    return model.named_buffers() if isinstance(model, Naming) else named_buffers(model)
