"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import plain_name, require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    ``is_counted``: they are gradients of sums over elements that are counted beside them.
    """

    def __init__(self, parameters: Iterable[tf.Variable], is_mean: bool = True, is_counted: bool = False) -> None:
        self.parameters, self.is_mean, self.is_counted = list(parameters), is_mean, is_counted
        self.totals = [
            tf.Variable(tf.zeros(p.shape, wide(p.dtype)), trainable=False, name=f"window/{plain_name(p)}")
            for p in self.parameters
        ]
        self.rows = tf.Variable(tf.zeros((), tf.int64), trainable=False, name="window/rows")
        self.count = tf.Variable(tf.zeros((), tf.float64), trainable=False, name="window/count") if is_counted else None

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0) -> None:
        """Add gradients, each as often as it has rows, or those of sums and what these count."""
        self.gather(gradients, 1 if self.is_counted else rows)
        self.tally(rows, count)

    def tally(self, rows: Any, count: Any) -> None:
        """Count the rows of a step, and what its gradients count."""
        self.rows.assign_add(tf.cast(rows, tf.int64))
        if self.count is not None:
            self.count.assign_add(tf.cast(count, tf.float64))

    def gather(self, gradients: Sequence[Any], rows: Any) -> None:
        """Add gradients to the totals, each so many times."""
        require_gradients(gradients)
        for total, gradient in zip(self.totals, gradients, strict=True):
            total.assign_add(tf.cast(gradient, total.dtype) * tf.cast(rows, total.dtype))

    def take(self) -> tuple[Any, ...]:
        """Return the mean over all rows, or all that is counted, or the sum, and begin anew."""
        share = self.share()
        found = [total / tf.cast(share, total.dtype) if self.is_mean else total.read_value() for total in self.totals]
        taken = tuple(tf.cast(each, p.dtype) for each, p in zip(found, self.parameters, strict=True))
        self.drop()
        return taken

    def share(self) -> tf.Tensor:
        """Return what a mean divides by."""
        return self.rows.read_value() if self.count is None else at_least_one(self.count.read_value())

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        for total in self.totals:
            total.assign(tf.zeros_like(total))
        self.rows.assign(0)
        if self.count is not None:
            self.count.assign(0.0)


class GuardedWindow(Window):
    """A window that takes no gradients in without a verdict; ``is_whole``: one that is missing spoils all of it.

    ``keeps_before``: a step can be undone, if it was not committed.
    """

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
        keeps_before: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted)
        self.is_whole, self.keeps_before = is_whole, keeps_before
        self.before: list[tuple[tf.Variable, tf.Tensor]] = []  # what the step that is being traced begins with
        self.spoiled = tf.Variable(tf.zeros((), tf.bool), trainable=False, name="window/spoiled")

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add gradients where they are committed, each as often as it has rows, or those of sums and their count."""
        self.before = [(each, each.read_value()) for each in self.variables()] if self.keeps_before else []
        commits = tf.constant(True) if commits is None else commits
        taken = tf.cast(commits, tf.int64)
        kept = [None if each is None else tf.where(commits, each, tf.zeros_like(each)) for each in gradients]
        self.gather(kept, 1 if self.is_counted else rows)
        self.tally(taken * tf.cast(rows, tf.int64), tf.where(commits, tf.cast(count, tf.float64), 0.0))
        self.spoiled.assign(tf.logical_not(commits) | self.spoiled)

    def variables(self) -> list[tf.Variable]:
        """Return all that the window is."""
        held = (*self.totals, self.rows, self.count, self.spoiled)
        return [each for each in held if each is not None]

    def restore(self) -> None:
        """Be as before the step: the update takes no part in it."""
        for each, value in self.before:
            each.assign(value)

    def is_filled(self) -> tf.Tensor:
        """Return whether there is something to take."""
        return tf.logical_not(self.spoiled) if self.is_whole else self.rows > 0

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.spoiled.assign(False)


def at_least_one(count: tf.Tensor) -> tf.Tensor:
    """Return a count to divide by: of what keeps nothing the gradient is zero."""
    return tf.where(count == 0, tf.ones_like(count), count)


def wide(dtype: tf.DType) -> tf.DType:
    """Return a type in which many numbers of a type are added up."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
