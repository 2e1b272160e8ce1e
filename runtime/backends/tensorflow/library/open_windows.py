"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.gaps import Gaps, Maybe
from runtime.backends.tensorflow.library.optimizers import plain_name
from runtime.backends.tensorflow.library.windows import GuardedWindow, Window


class OpenWindow(Window):
    """What several steps gave, in float32 at least, and for how many rows it stands.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent: ``seen`` holds what was not.
    """

    def __init__(self, parameters: Iterable[tf.Variable], is_mean: bool = True, is_counted: bool = False) -> None:
        super().__init__(parameters, is_mean, is_counted)
        named = [plain_name(p) for p in self.parameters]
        self.seen = [tf.Variable(tf.constant(False), trainable=False, name=f"window/seen/{name}") for name in named]
        self.fresh = [False] * len(named)  # which gradients the step has that is being traced

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0) -> None:
        """Add the gradients that are there, each as often as it has rows, and what they count."""
        self.fresh = [each is not None for each in gradients]
        for total, seen, gradient in zip(self.totals, self.seen, gradients, strict=True):
            if gradient is not None:
                total.assign_add(tf.cast(gradient, total.dtype) * tf.cast(rows, total.dtype))
                seen.assign(True)
        self.rows.assign_add(tf.cast(rows, tf.int64))
        self.add_count(count)

    def take(self, fresh: bool = True) -> Gaps:
        """Return the mean over all rows, or the sum, and begin anew; not ``fresh``: this step added nothing."""
        flags, taken = [each.read_value() for each in self.seen], super().take()
        for seen in self.seen:
            seen.assign(False)
        rows = zip(taken, flags, self.fresh, strict=True)
        return tuple(each if fresh and is_new else Maybe(each, flag) for each, flag, is_new in rows)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        for seen in self.seen:
            seen.assign(False)


class GuardedOpenWindow(GuardedWindow):
    """A window of gradients that may be absent, which takes none in without a verdict.

    ``is_whole``: a step that is missing spoils all of it. ``seen``: which gradients some step had that was taken in.
    """

    def __init__(
        self,
        parameters: Iterable[tf.Variable],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted, is_whole)
        named = [plain_name(p) for p in self.parameters]
        self.seen = [tf.Variable(tf.constant(False), trainable=False, name=f"window/seen/{name}") for name in named]

    def add(self, gradients: Sequence[Any], rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        commits = tf.constant(True) if commits is None else commits
        pairs = zip(gradients, self.parameters, strict=True)
        super().add([tf.zeros(p.shape, p.dtype) if each is None else each for each, p in pairs], rows, count, commits)
        for seen, gradient in zip(self.seen, gradients, strict=True):
            if gradient is not None:
                seen.assign(commits | seen)

    def take(self, fresh: bool = True) -> Gaps:
        """Return the mean over the rows that were taken in, or the sum, and begin anew."""
        flags, taken = [each.read_value() for each in self.seen], super().take()
        for seen in self.seen:
            seen.assign(False)
        return tuple(Maybe(each, flag) for each, flag in zip(taken, flags, strict=True))

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        for seen in self.seen:
            seen.assign(False)
