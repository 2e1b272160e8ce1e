"""Parameters that are currently frozen: no gradient is taken for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.gradients import gradients


def unfrozen_gradients(
    tape: tf.GradientTape, loss: Any, targets: Sequence[Any], frozen: Sequence[int], **options: Any
) -> tuple[Any, ...]:
    """Return the gradients of a loss, and None for the targets at some places."""
    kept = [at for at in range(len(targets)) if at not in frozen]
    found = gradients(tape, loss, [targets[at] for at in kept], **options) if kept else ()
    by_place = dict(zip(kept, found, strict=True))
    return tuple(by_place.get(at) for at in range(len(targets)))
