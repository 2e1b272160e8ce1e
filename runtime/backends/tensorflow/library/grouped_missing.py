"""Gaps in the gradients of an optimizer in groups, or of one of Keras."""

from __future__ import annotations

from contextlib import ExitStack

from runtime.backends.tensorflow.library.grouped import Grouped
from runtime.backends.tensorflow.library.missing import Maybe, MaybeGradients, apply_present, number_of, only_present
from runtime.backends.tensorflow.library.wrapped import Wrapped


def apply_present_grouped(optimizer: Grouped, gradients: MaybeGradients) -> None:
    """Step the parameters of every group that have a gradient; of the others nothing changes but the one count."""
    there = [at for at, each in enumerate(gradients) if each is not None]
    order = {at: number for number, at in enumerate(there)}
    shares = optimizer.shares
    with ExitStack() as stack:
        for (places, _), part in zip(shares, optimizer.parts, strict=True):
            stack.enter_context(only_present(part, [gradients[at] for at in places]))
        optimizer.shares = [([order[at] for at in places if at in order], changes) for places, changes in shares]
        try:
            apply_present(optimizer, gradients)
        finally:
            optimizer.shares = shares


def apply_present_wrapped(optimizer: Wrapped, gradients: MaybeGradients, counted: bool = False) -> None:
    """Step the parameters that have a gradient with Keras's rule; of the others nothing changes but the one count.

    Raises ValueError where only a running step knows which those are.
    """
    if any(isinstance(each, Maybe) for each in gradients):
        raise ValueError("an optimizer of Keras cannot leave out what was absent in all steps of a window")
    if all(each is None for each in gradients):
        optimizer.optimizer.iterations.assign_add(1)
        optimizer.applied.assign_add(1)
        return
    with only_present(optimizer, gradients):
        optimizer.apply([number_of(each) for each in gradients if each is not None])
