"""Names of a model's variables: those that it gives itself, or the paths by which they are found."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import named_buffers, named_parameters


@runtime_checkable
class Naming(Protocol):
    """A model that names its variables: the library's do (emitted modules have classes of their own)."""

    def named_parameters(self) -> dict[str, tf.Variable]:
        """Return what is trained."""
        ...

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Return the rest."""
        ...


def parameters(model: Any) -> dict[str, tf.Variable]:
    """Return the parameters of a model by name."""
    return model.named_parameters() if isinstance(model, Naming) else named_parameters(model)


def buffers(model: Any) -> dict[str, tf.Variable]:
    """Return the other variables of a model by name."""
    return model.named_buffers() if isinstance(model, Naming) else named_buffers(model)
