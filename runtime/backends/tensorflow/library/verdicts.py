"""Verdicts: whether the gradients of a step are finite, and what is held back where they are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from runtime.backends.tensorflow.library.scaling import NotFinite

NONE = -1
"""The place of a gradient that is not finite, where all are."""
ELSEWHERE = -2
"""The same where only another replica has one."""


class Verdicts:
    """The verdicts of the last step: of every update over its gradients, of every op whether it took place.

    ``updates``: those over whose gradients there is one; ``ops``: what takes place only under some verdicts.
    """

    def __init__(self, updates: Sequence[str], ops: Sequence[str]) -> None:
        self.missed = {
            update: tf.Variable(tf.constant(NONE, tf.int64), False) for update in updates
        }  # the first gradient that is not finite
        self.ops = tuple(ops)
        self.answers = tf.Variable(tf.ones((len(self.ops),), tf.bool), False)

    def check_finite(
        self, update: str, *sets: Sequence[tf.Tensor | None], filled: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return whether all gradients of an update are finite.

        ``filled``: whether the window from which they come holds something; if not, they are no overflow.
        """
        gradients = [gradient for each in sets for gradient in each]
        flags = tf.stack([True if each is None else tf.reduce_all(tf.math.is_finite(each)) for each in gradients])
        finite = tf.reduce_all(flags if filled is None else flags | tf.logical_not(filled))
        self.missed[update].assign(tf.where(finite, tf.constant(NONE, tf.int64), tf.argmin(tf.cast(flags, tf.int32))))
        return finite

    def check_own(self, update: str, *sets: Sequence[tf.Tensor | None], filled: tf.Tensor | None = None) -> tf.Tensor:
        """Return whether the gradients are finite that this replica has; the verdict is that of all."""
        return self.check_finite(update, *sets, filled=filled)

    def agree(self, update: str, finite: tf.Tensor) -> tf.Tensor:
        """Take the verdict of all replicas over gradients that each has checked, and return it."""
        missed = self.missed[update].read_value()
        elsewhere = tf.where(missed == NONE, tf.constant(ELSEWHERE, tf.int64), missed)
        self.missed[update].assign(tf.where(finite, tf.constant(NONE, tf.int64), elsewhere))
        return finite

    def begin(self) -> None:
        """Forget the step before."""
        for missed in self.missed.values():
            missed.assign(NONE)
        self.answers.assign(tf.ones_like(self.answers))

    def keep(self, commits: Mapping[str, tf.Tensor]) -> None:
        """Keep which ops take place in this step, for those who ask when it is over."""
        if self.ops:
            self.answers.assign(tf.stack([commits.get(op, True) for op in self.ops]))

    def withheld(self) -> frozenset[str]:
        """Return the ops that did not take place in the last step."""
        answers = self.answers.numpy() if self.ops else ()
        return frozenset(op for op, took_place in zip(self.ops, answers, strict=True) if not took_place)

    def require(self, update: str, *others: str) -> None:
        """Raise NotFinite where some verdict over the gradients of an update was not given."""
        if any(self.missed[each].numpy() != NONE for each in (update, *others) if each in self.missed):
            raise NotFinite("GS280", update, f"the gradients of '{update}' are not finite")


def when(commits: tf.Tensor, write: Callable[[], object]) -> None:
    """Make a write where it is committed; else everything stays as it is."""
    tf.cond(commits, lambda: (write(), tf.constant(True))[1], lambda: tf.constant(False))
