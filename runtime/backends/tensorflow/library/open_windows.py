"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.gaps import Gaps, Maybe
from runtime.backends.tensorflow.library.optimizers import plain_name
from runtime.backends.tensorflow.library.windows import GuardedWindow, Window, at_least_one


class OpenWindow(Window):
    """A window of gradients of which some may be absent in some steps.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent: ``seen`` holds what was not. Where elements are
    counted, the mean over these stands for the rows of the steps that had some: ``rested`` are those of the others.
    """

    def __init__(self, parameters: Iterable[tf.Variable], is_mean: bool = True, is_counted: bool = False) -> None:
        super().__init__(parameters, is_mean, is_counted)
        named = [plain_name(p) for p in self.parameters]
        self.seen = [tf.Variable(tf.constant(False), trainable=False, name=f"window/seen/{name}") for name in named]
        self.fresh = [False] * len(named)  # which gradients the step surely has that is being traced
        self.rested = tf.Variable(tf.zeros((), tf.int64), trainable=False, name="window/rested") if is_counted else None

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0) -> None:
        """Add the gradients that are there, each as often as it has rows, or those of sums and what these count."""
        super().add(gradients, rows, count)
        self.see(gradients, True)
        self.fresh = [each is not None for each in gradients]

    def rest(self, rows: Any = 1) -> None:
        """Count the rows of a step from which all gradients are absent."""
        self.add([None] * len(self.parameters), rows)
        if self.rested is not None:
            self.rested.assign_add(tf.cast(rows, tf.int64))

    def share(self) -> tf.Tensor:
        """Return what a mean divides by."""
        share, rows = super().share(), self.rows.read_value()
        if self.rested is None:
            return share
        return share * tf.cast(rows, share.dtype) / tf.cast(at_least_one(rows - self.rested), share.dtype)

    def gather(self, gradients: Sequence[Any], rows: Any) -> None:
        """Add the gradients that are there to the totals, each so many times."""
        for total, gradient in zip(self.totals, gradients, strict=True):
            if gradient is not None:
                total.assign_add(tf.cast(gradient, total.dtype) * tf.cast(rows, total.dtype))

    def see(self, gradients: Sequence[Any], commits: Any) -> None:
        """Note which gradients are there, if they are taken in."""
        for seen, gradient in zip(self.seen, gradients, strict=True):
            if gradient is not None:
                seen.assign(commits | seen)

    def take(self, fresh: bool = True) -> Gaps:
        """Return the mean over all rows, or the sum, and begin anew; not ``fresh``: this step added nothing."""
        flags, taken = [each.read_value() for each in self.seen], super().take()
        rows = zip(taken, flags, self.fresh, strict=True)
        return tuple(each if fresh and is_new else Maybe(each, flag) for each, flag, is_new in rows)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        for seen in self.seen:
            seen.assign(False)
        if self.rested is not None:
            self.rested.assign(0)


class GuardedOpenWindow(GuardedWindow, OpenWindow):
    """A window of gradients that may be absent, which takes none in without a verdict.

    ``is_whole``: a step that is missing spoils all of it. ``seen``: which gradients some step had that was taken in.
    """

    def variables(self) -> list[tf.Variable]:
        """Return all that the window is."""
        return [*super().variables(), *self.seen, *(() if self.rested is None else (self.rested,))]

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        commits = tf.constant(True) if commits is None else commits
        super().add(gradients, rows, count, commits)
        self.see(gradients, commits)

    def rest(self, rows: Any = 1, commits: tf.Tensor | None = None) -> None:
        """Count the rows of a step from which all gradients are absent, where it is committed."""
        self.add([None] * len(self.parameters), rows, 0, commits)
        if self.rested is not None:
            kept = rows if commits is None else tf.where(commits, rows, 0)
            self.rested.assign_add(tf.cast(kept, tf.int64))
