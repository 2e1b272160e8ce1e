"""Batches as a user's object gives them, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphspec.diagnostics import SpecError
from runtime.data.arrays import Batch, as_mapping, count_rows, select
from runtime.data.blame import blamed
from runtime.data.place import Place
from runtime.data.position import Position
from runtime.data.stateful import Stateful


@dataclass(slots=True, kw_only=True)
class Streamed:
    """Batches of an object that can only be iterated; it must be able to start again for every epoch."""

    origin: Iterable[object]
    place: Place
    passes: int = 0
    """How many were begun by this process."""
    kind: str = "stream"

    @property
    def size(self) -> None:
        """Return None: how many samples there are is not known."""

    @property
    def length(self) -> None:
        """Return None: how many batches there are is not known."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of one more pass over the object, whichever its number is."""
        empty = True
        for batch in self._read():
            empty = False
            yield batch
        if empty:
            raise self._exhausted()

    def follow(self, position: Position) -> Iterator[Batch]:
        """Yield what follows a position; an object without a state is read again up to there."""
        if isinstance(self.origin, Stateful):
            return self.epoch(position.epoch) if position.index == 0 else self._read()
        return self._reread(position)

    def _reread(self, position: Position) -> Iterator[Batch]:
        """Read all that was read before the position, as the object may have a random order of its own."""
        while self.passes < position.epoch:
            for _ in self.epoch(self.passes):
                pass
        rest = self.epoch(position.epoch)
        for number in range(position.index):
            if next(rest, None) is None:
                raise self._too_short(number, position)
        yield from rest

    def _read(self) -> Iterator[Batch]:
        """Yield what counts as a batch of one pass."""
        self.passes += 1
        for given in self._guarded():
            batch = select(as_mapping(given, self.place), self.place)
            if self._is_used(batch):
                yield batch

    def _is_used(self, batch: Batch) -> bool:
        """Tell whether a batch is full, or may be short; refuse one with more samples than the spec says."""
        declared = self.place.declared
        rows = count_rows(batch, self.place.spec)
        if rows > declared.batch:
            message = f"the source gave a batch of {rows} samples, not {declared.batch}"
            raise self.place.problem("GS225", message, "batch")
        return rows == declared.batch or not declared.drops_last(self.place.role)

    def _guarded(self) -> Iterator[object]:
        with blamed(self.place):
            iterator = iter(self.origin)
        while True:
            with blamed(self.place):
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
            yield batch

    def _exhausted(self) -> SpecError:
        if self.passes == 1:
            help = "a batch that is not full counts only with `drop_last: false`"
            return self.place.problem("GS227", "the source has no full batch", help=help)
        help = "make it a class with __iter__, not a generator that runs once"
        return self.place.problem("GS225", "the source gave no batches for a second pass", help=help)

    def _too_short(self, found: int, position: Position) -> SpecError:
        message = f"the source ended after {found} batches, {position.index} had been taken before the run was stopped"
        help = "give the source what it had then, or start a new run"
        return self.place.problem("GS252", message, help=help)
