"""Rows: gradients of tables that name the rows that a batch reached, and what steps these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from runtime.backends.torch.library.kernels import TensorList
from runtime.backends.torch.library.optimizers import Optimizer


class Rows:
    """The gradient of a table: indices [k], each once, and a vector for each, [k, size]; zero everywhere else."""

    def __init__(self, ids: torch.Tensor, values: torch.Tensor) -> None:
        self.ids, self.values = ids, values

    def over(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of sorted indices that include its own: zeros for the others."""
        found = torch.searchsorted(ids, self.ids)
        return self.values.new_zeros((len(ids), *self.values.shape[1:])).index_copy_(0, found, self.values)


RowGradients: TypeAlias = Sequence[Any]
"""Gradients of the parameters of one or several models, in order; those of tables are Rows."""


def rows_of(gradients: Sequence[Any]) -> RowGradients:
    """Return gradients with Rows in place of sparse tensors: what several uses give one row is summed."""
    return tuple(summed(each) if each is not None and each.is_sparse else each for each in gradients)


def summed(gradient: torch.Tensor) -> Rows:
    """Return the rows of a sparse tensor, indices in rising order."""
    gradient = gradient.coalesce()
    return Rows(gradient.indices()[0], gradient.values())


def ids_of(rows: Sequence[Rows]) -> torch.Tensor:
    """Return the indices of several gradients of a table, each once, in rising order."""
    return rows[0].ids if len(rows) == 1 else torch.unique(torch.cat([each.ids for each in rows]))


def values_of(gradients: RowGradients) -> tuple[Any, ...]:
    """Return gradients with the vectors of Rows in their place: their length is that of the whole gradient."""
    return tuple(each.values if isinstance(each, Rows) else each for each in gradients)


def over_rows(
    function: Callable[..., TensorList], sets: Sequence[RowGradients], *rest: Any, **options: Any
) -> RowGradients:
    """Return what a function makes of sets, of tables from the rows that some set has: it leaves zeros zero."""
    ids = [ids_of(each) if isinstance(each[0], Rows) else None for each in zip(*sets, strict=True)]
    whole = [
        tuple(each if at is None else each.over(at) for each, at in zip(gradients, ids, strict=True))
        for gradients in sets
    ]
    made = function(*whole, *rest, **options)
    return tuple(each if at is None else Rows(at, each) for each, at in zip(made, ids, strict=True))


def whole_tables(gradients: RowGradients, parameters: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return gradients in which those of tables have all rows, for rules that change rows without a gradient."""
    return tuple(
        torch.zeros_like(table, requires_grad=False).index_copy_(0, each.ids, each.values)
        if isinstance(each, Rows)
        else each
        for each, table in zip(gradients, parameters, strict=True)
    )


@torch.no_grad()
def apply_rows(optimizer: Optimizer, gradients: RowGradients) -> None:
    """Step the rows that have a gradient: others stay as they are, with all that the optimizer keeps for them.

    The rule is given these rows of tables and slots as if they were all, and they are written back.
    """
    ids = {id(p): each.ids for p, each in zip(optimizer.parameters, gradients, strict=True) if isinstance(each, Rows)}
    lent: list[tuple[list[Any], int, torch.Tensor, torch.Tensor]] = []
    for part in getattr(optimizer, "parts", [optimizer]):
        for at, table in enumerate(part.parameters):
            for each in (part.parameters, *part.held.values()) if id(table) in ids else ():
                if each[at] is not None and each[at].shape == table.shape:
                    lent.append((each, at, each[at], ids[id(table)]))
    for each, at, table, rows in lent:
        each[at] = table[rows]
    try:
        optimizer.apply(values_of(gradients))
    finally:
        for each, at, table, rows in lent:
            table.index_copy_(0, rows, each[at])
            each[at] = table
