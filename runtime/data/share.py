"""The rows of every batch that one of several processes takes."""

from __future__ import annotations

from typing import Protocol, cast

from msgspec import Struct

from runtime.data.arrays import Batch, MarkedBatch, count_rows
from runtime.data.place import Place


class _Sliceable(Protocol):
    """An array, or a tensor of a framework."""

    def __getitem__(self, where: tuple[slice, ...]) -> object:
        """Return a part of it."""
        ...


class Share(Struct, frozen=True, kw_only=True):
    """Contiguous rows of every batch for each of ``count`` processes, in the order of ranks, the larger parts first."""

    rank: int = 0
    count: int = 1

    def bounds(self, rows: int, place: Place) -> tuple[int, int]:
        """Return where the rows of this process begin and end in a batch.

        Raises SpecError (GS227), on all processes alike, where one of them would have too few.
        """
        parts = place.spec.micro_batches if place.role == "train" else 1
        if rows < self.count * parts:
            each = "a row" if parts == 1 else f"{parts} rows, one for each micro-batch"
            message = f"a batch of {rows} rows is too small for {self.count} processes, each of which needs {each}"
            remedy = "choose a `batch` that is larger, or leaves a larger rest or none"
            help = f"{remedy}, write `drop_last: true`, or start fewer processes"
            raise place.problem("GS227", message, "batch", help=help)
        size, larger = divmod(rows, self.count)
        begin = self.rank * size + min(self.rank, larger)
        return begin, begin + size + (self.rank < larger)

    def take(self, batch: Batch, place: Place) -> Batch:
        """Return the rows of this process of a whole batch; an input without rows stays as it is."""
        if self.count == 1:
            return batch
        rows = count_rows(batch, place.spec)
        begin, end = self.bounds(rows, place)
        taken = dict(batch)
        for name, value in batch.items():
            declared = place.spec.inputs[name].shape
            if declared is None or "batch" in declared:
                axis = 0 if declared is None else declared.index("batch")
                where = (slice(None),) * axis + (slice(begin, end),)
                taken[name] = cast("_Sliceable", value)[where]
        return MarkedBatch(taken, rows=rows)


WHOLE = Share()
"""All rows: there is one process."""
