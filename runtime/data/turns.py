"""Turns: batches of several training sets, one after another or drawn, and the place in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from graphspec.diagnostics import SpecError
from runtime.data.arrays import Batch, SetBatch, dataset_of
from runtime.data.feed import Feed
from runtime.data.length import count_turns
from runtime.data.place import Place
from runtime.state import Tree

KIND = "turns"
"""What stands in a saved place where that of a single set says what it counts."""
_WORD = 2**64
_STREAM = 0x7475726E73
"""Keeps the draws of sets apart from every shuffle of samples."""


@dataclass(slots=True, kw_only=True)
class TurnFeed:
    """Batches of several sets; restored from a saved state it gives exactly the batches that would have followed.

    The sets take turns in their order, and each epoch begins with the first. It ends with the round in which the
    longest set has ended; a set that ends before begins anew, shuffled again where it is shuffled, and goes on in the
    next epoch where it is. With ``mix`` the set of each batch is drawn, keyed by the seed and the number of the batch,
    and an epoch has as many batches as all sets that are drawn. Where the length of a set is not known, an epoch ends
    when each set has ended once.
    """

    feeds: Mapping[str, Feed]
    place: Place
    seed: int
    mix: Mapping[str, float] | None = None
    epoch: int = 0
    index: int = 0
    taken: int = 0
    ended: frozenset[str] = frozenset()
    """The sets that have ended in the epoch under way, where lengths are not known."""

    @property
    def parts(self) -> tuple[Feed, ...]:
        """Return the sets."""
        return tuple(self.feeds.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a user should know about the places that were restored."""
        return tuple(note for feed in self.parts for note in feed.notes)

    @property
    def length(self) -> int | None:
        """Return how many batches an epoch has; None where only reading would tell."""
        return count_turns({name: feed.length for name, feed in self.feeds.items()}, self.mix)

    def next(self) -> Batch | None:
        """Return the next batch, which says of which set it is; None where an epoch has ended.

        Raises SpecError as the feed of its set does; the place stays where it is.
        """
        length = self.length
        if length is not None and self.index >= length:
            return self._end()
        name = self._choose(self.index, self.taken)
        batch = self.feeds[name].next()
        if batch is None:
            self.ended |= {name}
            if length is None and self.ended.issuperset(self._drawn()):
                return self._end()
            batch = self.feeds[name].next()
        self.index, self.taken = self.index + 1, self.taken + 1
        return SetBatch(batch or {}, name)

    def first(self) -> Batch | None:
        """Return the first batch of the run, without going anywhere."""
        name = self._choose(0, 0)
        batch = self.feeds[name].first()
        return None if batch is None else SetBatch(batch, name)

    def rows(self, batch: Batch) -> int:
        """Return how many samples a batch has."""
        return self.feeds[dataset_of(batch) or next(iter(self.feeds))].rows(batch)

    def attach(self, step: object) -> None:
        """Give the built step to the sources that want it."""
        for feed in self.parts:
            feed.attach(step)

    def one_pass(self) -> Iterator[Batch]:
        """Yield the batches of every set once, one set after another, as an evaluation wants them."""
        for name, feed in self.feeds.items():
            for batch in feed.one_pass():
                yield SetBatch(batch, name)

    def state(self) -> Tree:
        """Return the place in all sets."""
        counts: dict[str, Tree] = {"epoch": self.epoch, "index": self.index, "taken": self.taken}
        sets: dict[str, Tree] = {name: feed.state() for name, feed in self.feeds.items()}
        ended: list[Tree] = [*sorted(self.ended)]
        found: dict[str, Tree] = {"kind": KIND, **counts, "ended": ended, "sets": sets}
        return found

    def restore(self, tree: Tree) -> None:
        """Go to a saved place; raises SpecError (GS252) where it is none in these sets."""
        match tree:
            case {
                "kind": "turns",
                "epoch": int(epoch),
                "index": int(index),
                "taken": int(taken),
                "ended": list(ended),
                "sets": Mapping() as sets,
            } if sets.keys() == self.feeds.keys():
                for name, feed in self.feeds.items():
                    feed.restore(sets[name])
                self.epoch, self.index, self.taken = epoch, index, taken
                self.ended = frozenset(str(name) for name in ended)
            case _:
                raise self._unfit()

    def _drawn(self) -> tuple[str, ...]:
        """Return the sets that have a turn at all."""
        return tuple(name for name in self.feeds if self.mix is None or self.mix[name] > 0)

    def _choose(self, index: int, taken: int) -> str:
        """Return the set of the batch of this number in its epoch, and in all."""
        names = tuple(self.feeds)
        if self.mix is None:
            return names[index % len(names)]
        key = np.array([self.seed % _WORD, taken % _WORD], dtype=np.uint64)
        drawn = np.random.Generator(np.random.Philox(key=key, counter=_STREAM)).random()
        return draw(drawn, {name: self.mix[name] for name in self._drawn()})

    def _end(self) -> None:
        """End the epoch under way."""
        self.epoch, self.index, self.ended = self.epoch + 1, 0, frozenset()

    def _unfit(self) -> SpecError:
        """Return the error of a place that is none in these sets."""
        message = f"the checkpoint holds no position in the training sets {', '.join(self.feeds)}"
        return self.place.problem("GS252", message, help="give the run the sets it had then, or start a new one")


def draw(number: float, weights: Mapping[str, float]) -> str:
    """Return the name under which a number from 0 to 1 falls, where each takes a share by its weight."""
    share, total = 0.0, sum(weights.values())
    for name, weight in weights.items():
        share += weight / total
        if number < share:
            return name
    return tuple(weights)[-1]
