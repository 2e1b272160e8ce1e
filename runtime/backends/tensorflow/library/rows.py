"""Rows: gradients of tables that name the rows that a batch reached, and what steps these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.gradients import GradientSet, dense
from runtime.backends.tensorflow.library.optimizers import Optimizer


class Rows:
    """The gradient of a table: indices [k], each once, and a vector for each, [k, size]; zero everywhere else."""

    def __init__(self, ids: tf.Tensor, values: tf.Tensor) -> None:
        self.ids, self.values = ids, values


RowGradients: TypeAlias = Sequence[Any]
"""Gradients of the parameters of one or several models, in order; those of tables are Rows."""


def row_gradients(tape: tf.GradientTape, loss: Any, targets: Sequence[Any], seeds: Any = None) -> RowGradients:
    """Return the gradients of a loss, with Rows for tables: what several uses give one row is summed.

    ``seeds`` are what the gradient of a loss that is no single number starts with. Raises ValueError for such a loss
    without seeds, and RuntimeError where the loss does not reach a target.
    """
    if seeds is None and loss.shape.rank and loss.shape.num_elements() != 1:
        raise ValueError("the loss is not a single number")
    found = zip(tape.gradient(loss, list(targets), output_gradients=seeds), targets, strict=True)
    return tuple(summed(each) if isinstance(each, tf.IndexedSlices) else dense(each, of, "error") for each, of in found)


def summed(gradient: tf.IndexedSlices) -> Rows:
    """Return the rows of a gradient, in the order in which they are first named."""
    ids, places = tf.unique(tf.cast(gradient.indices, tf.int64))
    return Rows(ids, tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids)))


def align_rows(rows: Sequence[Rows]) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the indices of several gradients of a table, each once, and the vectors of each: zeros for the others."""
    if len(rows) == 1:
        return rows[0].ids, [rows[0].values]
    ids, places = tf.unique(tf.concat([each.ids for each in rows], 0))
    parts = tf.split(places, [tf.size(each.ids) for each in rows], num=len(rows))
    pairs = zip(rows, parts, strict=True)
    return ids, [tf.math.unsorted_segment_sum(each.values, part, tf.size(ids)) for each, part in pairs]


def values_of(gradients: RowGradients) -> tuple[Any, ...]:
    """Return gradients with the vectors of Rows in their place: their length is that of the whole gradient."""
    return tuple(each.values if isinstance(each, Rows) else each for each in gradients)


def over_rows(
    function: Callable[..., GradientSet], sets: Sequence[RowGradients], *rest: Any, **options: Any
) -> RowGradients:
    """Return what a function makes of sets, of tables from the rows that some set has: it leaves zeros zero."""
    entries = [align_rows(each) if isinstance(each[0], Rows) else (None, each) for each in zip(*sets, strict=True)]
    made = function(*zip(*(values for _, values in entries), strict=True), *rest, **options)
    return tuple(each if ids is None else Rows(ids, each) for each, (ids, _) in zip(made, entries, strict=True))


def whole_tables(gradients: RowGradients, parameters: Sequence[tf.Variable]) -> tuple[tf.Tensor, ...]:
    """Return gradients in which those of tables have all rows, for rules that change rows without a gradient."""
    return tuple(
        tf.scatter_nd(each.ids[:, None], each.values, tf.shape(table, tf.int64)) if isinstance(each, Rows) else each
        for each, table in zip(gradients, parameters, strict=True)
    )


class TableRows:
    """Some rows of a variable, as the rule of an optimizer sees them: read where they are, written back at once."""

    def __init__(self, table: tf.Variable, ids: tf.Tensor) -> None:
        self.table, self.ids, self.dtype = table, ids, table.dtype

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        """Return the rows as they are now."""
        return tf.gather(self.table, self.ids, name=name)

    def assign_add(self, change: tf.Tensor, read_value: bool = False) -> tf.Tensor | None:
        """Add to the rows; return them."""
        self.table.scatter_add(tf.IndexedSlices(change, self.ids))
        return tf.gather(self.table, self.ids) if read_value else None

    def assign_sub(self, change: tf.Tensor) -> None:
        """Subtract from the rows."""
        self.table.scatter_sub(tf.IndexedSlices(change, self.ids))


def apply_rows(optimizer: Optimizer, gradients: RowGradients) -> None:
    """Step the rows that have a gradient: others stay as they are, with all that the optimizer keeps for them.

    The rule is given these rows of tables and slots as if they were all.
    """
    ids = {id(p): each.ids for p, each in zip(optimizer.parameters, gradients, strict=True) if isinstance(each, Rows)}
    lent: list[tuple[list[Any], int, tf.Variable]] = []
    for part in getattr(optimizer, "parts", [optimizer]):
        for at, table in enumerate(part.parameters):
            lists = (part.parameters, *part.slots.values()) if id(table) in ids else ()
            lent += [(each, at, each[at]) for each in lists]
            for each in lists:
                each[at] = TableRows(each[at], ids[id(table)])
    try:
        optimizer.apply(values_of(gradients))
    finally:
        for each, at, table in lent:
            each[at] = table
