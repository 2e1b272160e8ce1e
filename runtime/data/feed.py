"""A feed: the batches of a run in their order, and the place in it that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from graphspec.diagnostics import SpecError
from runtime.data.arrays import Batch, count_rows
from runtime.data.batches import Batches
from runtime.data.blame import blamed
from runtime.data.inspection import Inspector
from runtime.data.place import Place
from runtime.data.position import Position
from runtime.data.saved import Saved
from runtime.data.stateful import Stateful, load_state, read_state
from runtime.state import Tree


@runtime_checkable
class Attachable(Protocol):
    """A source that uses the step it feeds, such as one that acts with the policy it trains."""

    def attach(self, step: object) -> object:
        """Take the built step, once, before the first batch."""
        ...


@dataclass(slots=True, kw_only=True)
class Feed:
    """Batches, epoch after epoch; restored from a saved state it gives exactly the batches that would have followed."""

    batches: Batches
    place: Place
    position: Position = field(default_factory=Position)
    notes: tuple[str, ...] = ()
    """What a user should know about the place that was restored."""
    inspector: Inspector | None = None
    """Looks through every batch of training before it is given out."""
    _rest: Iterator[Batch] | None = None
    """The rest of the epoch under way, once a batch of it was asked for."""
    _start: Tree = None
    """The state of the source before its first pass for an evaluation."""

    @property
    def epoch(self) -> int:
        """Return how many epochs have ended."""
        return self.position.epoch

    @property
    def index(self) -> int:
        """Return how many batches were taken in the epoch under way."""
        return self.position.index

    @property
    def taken(self) -> int:
        """Return how many batches were taken in all."""
        return self.position.taken

    @property
    def parts(self) -> tuple[Feed, ...]:
        """Return the feeds of which it is made: itself."""
        return (self,)

    def first(self) -> Batch | None:
        """Return the first batch of the run, without going anywhere."""
        return next(self.one_pass(), None)

    @property
    def length(self) -> int | None:
        """Return how many batches an epoch has; None where only reading would tell."""
        return self.batches.length

    def next(self) -> Batch | None:
        """Return the next batch; None where an epoch has ended: the next call begins the next one.

        Raises SpecError: GS223-GS228, GS252, and GS250, GS251 of an inspector, with the number of epoch and batch; the
        position stays where it is.
        """
        try:
            if self._rest is None:
                self._rest = self.batches.follow(self.position)
            batch = next(self._rest, None)
            if batch is not None and self.inspector is not None:
                self.inspector.inspect(batch, self.taken + 1)
        except SpecError as error:
            self._rest = None
            raise self.place.locate(error, self.position) from error.__cause__
        if batch is None:
            self._rest = None
            self.position = self.position.at_next_epoch()
        else:
            self.position = self.position.after(self.rows(batch))
        return batch

    def rows(self, batch: Batch) -> int:
        """Return how many samples a batch has."""
        return count_rows(batch, self.place.spec)

    def attach(self, step: object) -> None:
        """Give the built step to a source that wants it. Raises SpecError: GS226 it raised."""
        origin = self.batches.origin
        if isinstance(origin, Attachable):
            with blamed(self.place):
                origin.attach(step)

    def state(self) -> Tree:
        """Return the position, and the state of a source that has one. Raises SpecError: GS226, GS253."""
        return Saved.of(self.batches, self.place, self.position).to_tree()

    def restore(self, tree: Tree) -> None:
        """Go to a saved position; the next batch is the one that would have followed.

        Raises SpecError: GS252 it is no position in this source, GS226 the source raised. Nothing has changed then.
        """
        saved = Saved.read(tree, self.place)
        saved.check(self.batches, self.place)
        origin = self.batches.origin
        if isinstance(origin, Stateful):
            load_state(origin, saved.state, self.place)
        self.notes = tuple(saved.compare(self.batches, self.place))
        self.position = saved.position
        self._rest = None

    def one_pass(self) -> Iterator[Batch]:
        """Yield the batches of epoch 0 from its start, as an evaluation wants them; the position stays where it is.

        A source with a state is put back to where it was first passed through, so that every pass is the same.
        """
        position = Position()
        origin = self.batches.origin
        if isinstance(origin, Stateful) and self._start is None:
            self._start = read_state(origin, self.place)
        try:
            for batch in self.batches.epoch(0):
                position = position.after(self.rows(batch))
                yield batch
        except SpecError as error:
            raise self.place.locate(error, position) from error.__cause__
        finally:
            if isinstance(origin, Stateful):
                load_state(origin, self._start, self.place)
                self._rest = None
