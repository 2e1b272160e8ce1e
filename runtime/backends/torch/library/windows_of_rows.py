"""Windows of gradients with rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from runtime.backends.torch.library.rows import RowGradients, Rows, ids_of
from runtime.backends.torch.library.windows import Window
from runtime.support.ties import places


class RowWindow(Window):
    """A window in which tables have rows: those that some step of it has, each with the sum of what these gave.

    ``tables`` are those of its parameters whose gradients are Rows.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], tables: Iterable[torch.Tensor], **options: Any) -> None:
        parameters = list(parameters)
        self.tables = places(list(tables), parameters)
        super().__init__(parameters, **options)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.ids = {at: torch.zeros(0, dtype=torch.int64, device=self.parameters[at].device) for at in self.tables}

    def add(self, gradients: RowGradients, rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add gradients as a window does; a row that only steps have that are not committed is not of the window."""
        added, totals = list(gradients), list(self.totals)
        for at in self.tables:
            new, old = gradients[at], [Rows(self.ids[at], each) for each in totals[at : at + 1]]
            if commits is not None:
                is_kept = commits.expand_as(new.ids)
                new = Rows(new.ids[is_kept], new.values[is_kept])
            self.ids[at] = ids_of([*old, new])
            added[at], totals[at : at + 1] = new.over(self.ids[at]), [each.over(self.ids[at]) for each in old]
        self.totals = totals
        super().add(added, rows, count, commits)

    def take(self, fresh: bool = True) -> RowGradients:
        """Return what a window gives, of tables the rows, and begin anew."""
        ids = self.ids
        found = super().take(fresh)
        return tuple(Rows(ids[at], each) if at in ids else each for at, each in enumerate(found))
