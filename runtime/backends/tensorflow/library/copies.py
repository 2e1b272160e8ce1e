"""Copies of models."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import KerasLayer, parts_of
from runtime.support.closures import bound_again


@runtime_checkable
class KerasTracker(Protocol):
    """What keeps the lists of a layer's parts: it refuses a part that comes late."""

    def track(self, attr: Any) -> Any:
        """List a part."""

    def lock(self, msg: Any = None) -> None:
        """Refuse further parts."""


def copied(model: Any) -> Any:
    """Return a copy of a model, with variables of its own.

    Layers of Keras are copied as any object is: Keras itself would write each to a file and construct it anew.
    """
    layers = list(layers_of(model, set()))
    trackers = [each for layer in layers for each in vars(layer).values() if isinstance(each, KerasTracker)]
    originals = (*layers, *trackers)
    memo: dict[int, Any] = {id(each): each for each in sys.modules.values()}  # seed generators of Keras hold one
    memo.update({id(each): blank(each) for each in originals})
    owners = (*layers, *(model.submodules if isinstance(model, tf.Module) else ()), model)
    with bound_again(owners, memo):
        # Lists of parts tell their tracker of every part that is put into them: it stays blank until all of them are.
        for each in originals:
            vars(memo[id(each)]).update(copy.deepcopy(vars(each), memo))
        return copy.deepcopy(model, memo)


def blank(original: Any) -> Any:
    """Return an object of the same class, of which nothing is made yet; a tracker that tracks nothing."""
    kind: Any = type(original)
    return kind({}) if isinstance(original, KerasTracker) else object.__new__(kind)


def layers_of(owner: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the layers of Keras that a model is made of, itself among them, once each."""
    if id(owner) in seen or isinstance(owner, (str, int, float, type, tf.Variable)):
        return
    seen.add(id(owner))
    if isinstance(owner, KerasLayer):
        yield owner
    hidden = vars(owner).values() if isinstance(owner, KerasLayer) else ()
    for part in (*(part for _, part in parts_of(owner)), *hidden):
        yield from layers_of(part, seen)
