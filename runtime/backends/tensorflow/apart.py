"""Several results of the user's code stay separate: TensorFlow would stack them where it expects one tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import tensorflow as tf


def keep_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a user's function so that its results stay separate: TensorFlow stacks several where it expects one tensor.

    The user's code gets them unchanged.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        result = function(*map(_joined, args), **{name: _joined(each) for name, each in kwargs.items()})
        return _made(_apart_of(type(result)), result) if isinstance(result, (tuple, list)) else result

    return called


@functools.cache
def _apart_of(kind: type) -> type:
    """Return a type of sequences like another, which TensorFlow does not convert to tensors."""
    apart = type(kind.__name__, (kind, Apart), {})
    tf.register_tensor_conversion_function(apart, _refuse, priority=0)
    return apart


class Apart:
    """A sequence that TensorFlow does not stack."""


def _joined(value: Any) -> Any:
    """Return a result of a user's call in its original type."""
    return _made(type(value).__base__, value) if isinstance(value, Apart) else value


def _made(kind: Any, value: Any) -> Any:
    """Return a sequence, or a named tuple, as another type."""
    return getattr(kind, "_make", kind)(value)


def _refuse(value: Any, *_: object, **__: object) -> NoReturn:
    """Refuse to convert several results to a tensor."""
    raise TypeError(f"must be Tensor, not {'list' if isinstance(value, list) else 'tuple'}")
