"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.missing import Maybe
from runtime.backends.tensorflow.library.optimizers import plain_name, require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    ``is_counted``: they are gradients of sums over elements that are counted separately. ``keeps_before``: a step can
    be undone, if it was not committed.

    ``guard``: gradients that are not committed are left out ("drop"), or spoil all of it ("window").

    ``may_miss``: some gradients may be absent in some steps. They add nothing to the sum, while their rows count: what
    comes out is the gradient of the mean over all rows. What was absent in every step that was taken in is absent:
    ``seen`` says. Where elements are counted, the mean over these counts for the rows of the steps that had some:
    ``absent_rows`` are those of the others.
    """

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        *,
        is_mean: bool = True,
        is_counted: bool = False,
        may_miss: bool = False,
        guard: str = "none",
        keeps_before: bool = False,
    ) -> None:
        self.parameters, self.is_mean, self.may_miss = list(parameters), is_mean, may_miss
        self.guard, self.keeps_before = guard, keeps_before
        self.totals = [zeros(p.shape, wide(p.dtype), plain_name(p)) for p in self.parameters]
        self.rows = zeros((), tf.int64, "rows")
        self.count = zeros((), tf.float64, "count") if is_counted else None
        self.absent_rows = zeros((), tf.int64, "rested") if is_counted and may_miss else None
        self.spoiled: Any = zeros((), tf.bool, "spoiled") if guard != "none" else None
        self.seen = [zeros((), tf.bool, f"seen/{plain_name(p)}") for p in self.parameters] if may_miss else []
        self.fresh = [False] * len(self.parameters)  # which gradients the step surely has that is being traced
        self.before: list[tuple[tf.Variable, tf.Tensor]] = []  # what it begins with

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add gradients, each as often as it has rows, or those of sums and what these count, where committed."""
        self.before = [(each, each.read_value()) for each in self.variables()] if self.keeps_before else []
        self.fresh = [each is not None and commits is None for each in gradients]
        if not self.may_miss:
            require_gradients(gradients)
        times = 1 if self.count is not None else rows
        if commits is not None:
            gradients = [None if each is None else tf.where(commits, each, tf.zeros_like(each)) for each in gradients]
            rows, count = (tf.where(commits, each, 0) for each in (rows, count))
            self.spoiled.assign(tf.logical_not(commits) | self.spoiled)
        for total, gradient in zip(self.totals, gradients, strict=True):
            if gradient is not None:
                total.assign_add(tf.cast(gradient, total.dtype) * tf.cast(times, total.dtype))
        for seen, gradient in zip(self.seen, gradients, strict=False):
            if gradient is not None:
                seen.assign(True if commits is None else commits | seen)
        self.rows.assign_add(tf.cast(rows, tf.int64))
        if self.count is not None:
            self.count.assign_add(tf.cast(count, tf.float64))

    def add_absent(self, rows: Any = 1, commits: tf.Tensor | None = None) -> None:
        """Count the rows of a step from which all gradients are absent."""
        self.add([None] * len(self.parameters), rows, 0, commits)
        if self.absent_rows is not None:
            kept = rows if commits is None else tf.where(commits, rows, 0)
            self.absent_rows.assign_add(tf.cast(kept, tf.int64))

    def is_filled(self) -> tf.Tensor:
        """Return whether there is something to take."""
        return tf.logical_not(self.spoiled) if self.guard == "window" else self.rows > 0

    def take(self, fresh: bool = True) -> tuple[Any, ...]:
        """Return the mean over all rows, or all that is counted, or the sum, and begin anew.

        Not ``fresh``: this step added nothing.
        """
        share, flags = self.share(), [each.read_value() for each in self.seen]
        found = [total / tf.cast(share, total.dtype) if self.is_mean else total.read_value() for total in self.totals]
        taken = [tf.cast(each, p.dtype) for each, p in zip(found, self.parameters, strict=True)]
        self.drop()
        if not self.may_miss:
            return tuple(taken)
        there = zip(taken, flags, self.fresh, strict=True)
        return tuple(each if fresh and is_new else Maybe(each, flag) for each, flag, is_new in there)

    def share(self) -> tf.Tensor:
        """Return what a mean divides by."""
        rows = self.rows.read_value()
        number = rows if self.guard == "none" else at_least_one(rows)
        share = number if self.count is None else at_least_one(self.count.read_value())
        if self.absent_rows is None:
            return share
        return share * tf.cast(rows, share.dtype) / tf.cast(at_least_one(rows - self.absent_rows), share.dtype)

    def variables(self) -> list[tf.Variable]:
        """Return all that the window is."""
        held = (*self.totals, self.rows, self.count, self.absent_rows, self.spoiled, *self.seen)
        return [each for each in held if each is not None]

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        for each in self.variables():
            each.assign(tf.zeros(each.shape, each.dtype))

    def restore(self) -> None:
        """Be as before the step: the update takes no part in it."""
        for each, value in self.before:
            each.assign(value)


def zeros(shape: Any, dtype: tf.DType, name: str) -> tf.Variable:
    """Return a variable of a window."""
    return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=f"window/{name}")


def at_least_one(count: tf.Tensor) -> tf.Tensor:
    """Return a count to divide by: of what keeps nothing the gradient is zero."""
    return tf.where(count == 0, tf.ones_like(count), count)


def wide(dtype: tf.DType) -> tf.DType:
    """Return a type in which many numbers of a type are added up."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
