"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.gaps import Gaps, Maybe
from runtime.backends.tensorflow.library.optimizers import plain_name
from runtime.backends.tensorflow.library.windows import GuardedWindow, Window


class OpenWindow(Window):
    """A window of gradients of which some may be absent in some steps.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent: ``seen`` holds what was not.
    """

    def __init__(self, parameters: Iterable[tf.Variable], is_mean: bool = True, is_counted: bool = False) -> None:
        super().__init__(parameters, is_mean, is_counted)
        named = [plain_name(p) for p in self.parameters]
        self.seen = [tf.Variable(tf.constant(False), trainable=False, name=f"window/seen/{name}") for name in named]
        self.fresh = [False] * len(named)  # which gradients the step surely has that is being traced

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0) -> None:
        """Add the gradients that are there, each as often as it has rows, and what they count."""
        super().add(gradients, rows, count)
        self.see(gradients, True)
        self.fresh = [each is not None for each in gradients]

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


class GuardedOpenWindow(GuardedWindow, OpenWindow):
    """A window of gradients that may be absent, which takes none in without a verdict.

    ``is_whole``: a step that is missing spoils all of it. ``seen``: which gradients some step had that was taken in.
    """

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        commits = tf.constant(True) if commits is None else commits
        super().add(gradients, rows, count, commits)
        self.see(gradients, commits)
