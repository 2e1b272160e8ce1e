"""Taps: what the watched layers of models leave their results with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import KerasLayer, parts_of

TAPS = ("seen", "call")
"""Attributes by which layers are watched: of the library's, and of Keras's."""


@contextmanager
def untapped(models: Mapping[str, Any]) -> Iterator[None]:
    """Put back on the way out what watched layers leave their results with: another module may watch them inside."""
    layers = list(_find_layers(list(models.values()), set()))
    kept = [{name: vars(layer)[name] for name in TAPS if name in vars(layer)} for layer in layers]
    try:
        yield
    finally:
        for layer, attributes in zip(layers, kept, strict=True):
            for name in TAPS:
                vars(layer).pop(name, None)
            vars(layer).update(attributes)


def _find_layers(owner: Any, seen: set[int]) -> Iterator[Any]:
    """Yield all modules and layers of something, once each."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    if isinstance(owner, (tf.Module, KerasLayer)):
        yield owner
    for _, part in parts_of(owner):
        yield from _find_layers(part, seen)
