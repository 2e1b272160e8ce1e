"""Windows of gradients with rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import plain_name
from runtime.backends.tensorflow.library.rows import RowGradients, Rows, align_rows
from runtime.backends.tensorflow.library.windows import Window, zeros
from runtime.support.ties import places


class RowWindow(Window):
    """A window in which tables have rows: those that some step of it has, each with the sum of what these gave.

    ``tables`` are those of its parameters whose gradients are Rows.
    """

    def __init__(self, parameters: Iterable[tf.Variable], tables: Iterable[tf.Variable], **options: Any) -> None:
        known = list(parameters)
        self.tables = places(list(tables), known)
        self.ids: dict[int, tf.Variable] = {}
        empty = {
            at: tf.TensorSpec((0, *known[at].shape[1:]), known[at].dtype, plain_name(known[at])) for at in self.tables
        }
        stand_ins: list[Any] = [empty.get(at, each) for at, each in enumerate(known)]
        super().__init__(stand_ins, **options)
        self.parameters = known
        for at in self.tables:
            self.totals[at] = growing(self.totals[at])
            self.ids[at] = growing(zeros((0,), tf.int64, f"ids/{plain_name(known[at])}"))

    def variables(self) -> list[tf.Variable]:
        """Return all that the window is."""
        return [*super().variables(), *self.ids.values()]

    def drop(self) -> None:
        """Forget what was added, and begin anew.

        Only a tensor says that no rows are kept: TensorFlow would take the sizes of other steps' rows from a known one.
        """
        none = tf.minimum(self.rows.read_value(), 0)
        for each in self.variables():
            is_whole = each.shape.is_fully_defined()
            each.assign(tf.zeros(each.shape, each.dtype) if is_whole else each.read_value()[:none])

    def add(self, gradients: RowGradients, rows: Any = 1, count: Any = 0, commits: tf.Tensor | None = None) -> None:
        """Add gradients as a window does; a row that only steps have that are not committed is not of the window."""
        added = list(gradients)
        for at in self.tables:
            new = gradients[at]
            if commits is not None:
                kept = tf.where(commits, tf.size(new.ids), 0)
                new = Rows(new.ids[:kept], new.values[:kept])
            old = Rows(self.ids[at].read_value(), self.totals[at].read_value())
            ids, (total, added[at]) = align_rows([old, new])
            self.ids[at].assign(ids)
            self.totals[at].assign(total)
        super().add(added, rows, count, commits)

    def take(self, fresh: bool = True) -> RowGradients:
        """Return what a window gives, of tables the rows, and begin anew."""
        ids = {at: each.read_value() for at, each in self.ids.items()}
        found = super().take(fresh)
        return tuple(Rows(ids[at], each) if at in ids else each for at, each in enumerate(found))


def growing(held: tf.Variable) -> tf.Variable:
    """Return a variable like another whose first axis may have any size."""
    return tf.Variable(held, trainable=False, shape=(None, *held.shape[1:]), name=plain_name(held))
