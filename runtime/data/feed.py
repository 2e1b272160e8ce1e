"""A feed: the batches of a run in order, and the position in them that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from msgspec.structs import asdict
from pydantic import NonNegativeInt

from graphspec.analysis.datasets import join_batches
from graphspec.declare.data import TrainingSets
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from runtime.data.arrays import Batch, MarkedBatch, count_rows, dataset_of
from runtime.data.inspection import Inspector
from runtime.data.open import find_epoch_length, open_data
from runtime.data.place import Place, Position
from runtime.data.share import WHOLE, Share
from runtime.data.source import Batches, Stateful, blamed, load_state, read_state
from runtime.state import PlainModel, Tree

_NAMES: Mapping[str, str] = {"samples": "samples by number", "stream": "batches one after another"}
_HELP = "restore the source to what it was then, or start a new run"


class Saved(PlainModel):
    """A position, the properties of the source for which it is valid, and the state of a user's own source."""

    kind: str
    size: int | None
    epoch: NonNegativeInt
    index: NonNegativeInt
    samples: NonNegativeInt
    taken: NonNegativeInt
    batch: NonNegativeInt
    stateful: bool
    state: object = None

    @classmethod
    def of(cls, batches: Batches, place: Place, position: Position) -> Saved:
        """Return the saved state of a feed. Raises SpecError: GS226, GS253 the state of a user's own source."""
        origin = batches.origin
        return cls(
            kind=batches.kind,
            size=batches.size,
            **asdict(position),
            batch=place.declared.batch,
            stateful=isinstance(origin, Stateful),
            state=read_state(origin, place) if isinstance(origin, Stateful) else None,
        )

    @property
    def position(self) -> Position:
        """Return the position."""
        return Position(epoch=self.epoch, index=self.index, samples=self.samples, taken=self.taken)

    def check(self, batches: Batches, place: Place) -> None:
        """Raise GS252 where a source cannot continue from here."""
        if self.kind != batches.kind:
            now, then = (_NAMES.get(kind, kind) for kind in (batches.kind, self.kind))
            raise _unfit(place, f"the source gives {now}, the run was saved with one that gives {then}")
        if batches.size is not None and self.position.samples > batches.size:
            epoch, samples = self.position.epoch + 1, self.position.samples
            raise _unfit(place, f"{samples} samples of epoch {epoch} had been taken, the source has {batches.size}")
        if self.stateful != isinstance(batches.origin, Stateful):
            has, held = ("no", "a") if self.stateful else ("a", "no")
            raise _unfit(place, f"the source has {has} load_state_dict, the run was saved with {held} state of it")

    def compare(self, batches: Batches, place: Place) -> Iterator[str]:
        """Yield a note on everything that has changed since this was saved, or takes time."""
        role, batch, taken = ".".join(place.path), place.declared.batch, self.position.taken
        if batches.size != self.size:
            yield f"{role} has {batches.size} samples, it had {self.size}: the next batches differ"
        if batch != self.batch:
            kept = f"{self.position.samples} samples" if batches.kind == "samples" else f"{self.position.index} batches"
            yield f"{role} has batches of {batch}, it had {self.batch}: the epoch continues after its first {kept}"
        if batches.kind == "stream" and not self.stateful and taken:
            yield f"{role} keeps no state: {taken} batches are read again to reach its position"


def _unfit(place: Place, message: str) -> SpecError:
    return place.problem("GS252", message, help=_HELP)


@runtime_checkable
class Attachable(Protocol):
    """A source that uses the step it feeds, such as one that acts by the policy under training."""

    def attach(self, step: object) -> object:
        """Receive the built step, once, before the first batch."""
        ...


@dataclass(slots=True, kw_only=True)
class Feed:
    """The batches of a data source, epoch after epoch. Made by :func:`open_feed`.

    >>> from graphspec import load
    >>> from runtime.data import open_feed
    >>> feed = open_feed(load("examples/simultaneous-gan/simultaneous-gan.yaml"), "train", seed=0)
    >>> feed.epoch, feed.index, feed.taken
    (0, 0, 0)
    """

    batches: Batches
    place: Place
    epoch: int = 0
    """How many epochs have ended."""
    index: int = 0
    """How many batches were taken in the epoch under way."""
    samples: int = 0
    """How many samples were taken in it."""
    taken: int = 0
    """How many batches were taken in all."""
    notes: tuple[str, ...] = ()
    """Notes for the user on the position that was restored."""
    inspector: Inspector | None = None
    """Inspects every batch of training before it is returned."""
    _rest: Iterator[Batch] | None = None
    """The remaining batches of the epoch under way, once one was requested."""
    _start: Tree = None
    """The state of the source before its first pass for an evaluation."""

    @property
    def position(self) -> Position:
        """Return the position in the source."""
        return Position(epoch=self.epoch, index=self.index, samples=self.samples, taken=self.taken)

    @property
    def parts(self) -> tuple[Feed, ...]:
        """Return the feeds of its sets: itself."""
        return (self,)

    def first(self) -> Batch | None:
        """Return the first batch of the run, None where there is none; the position stays.

        >>> feed.first()["image"].shape
        (64, 1, 8, 8)
        """
        return next(self.one_pass(), None)

    @property
    def length(self) -> int | None:
        """Return how many batches an epoch has; None where only reading would show."""
        return self.batches.length

    def next(self) -> Batch | None:
        """Return the next batch as arrays by input; None at the end of an epoch, after which the next one begins.

        Raises SpecError: GS223 to GS228 and GS252 data that does not fit, GS250 and GS251 values that `check_data`
        refuses, each with the numbers of epoch and batch. The position then stays.

        >>> feed.next().keys()
        dict_keys(['image'])
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
            self.epoch, self.index, self.samples = self.epoch + 1, 0, 0
        else:
            self.samples += self.batches.count(batch, self.samples)
            self.index, self.taken = self.index + 1, self.taken + 1
        return batch

    def rows(self, batch: Batch) -> int:
        """Return how many samples a batch has.

        >>> feed.rows(feed.first())
        64
        """
        return count_rows(batch, self.place.spec)

    def attach(self, step: object) -> None:
        """Pass the built step to a source that uses it, such as one that acts by the policy under training.

        Raises SpecError: GS226 the source raised.

        >>> feed.attach(None)  # the digits use no step
        """
        origin = self.batches.origin
        if isinstance(origin, Attachable):
            with blamed(self.place):
                origin.attach(step)

    def state(self) -> Tree:
        """Return the position, and the state of a source that has one, as plain data and arrays.

        Raises SpecError: GS226 the source raised, GS253 its state cannot be kept.

        >>> state = feed.state()
        """
        return dict(Saved.of(self.batches, self.place, self.position))

    def restore(self, tree: Tree) -> None:
        """Go to a saved position: the next batch is the one that would have followed.

        Raises SpecError: GS252 no position in this source, GS226 the source raised. Then nothing has changed.

        >>> after = feed.next()
        >>> feed.restore(state)
        >>> bool((feed.next()["image"] == after["image"]).all())
        True
        """
        try:
            saved = Saved.read(tree)
        except ValueError as error:
            message = f"the checkpoint holds no position in the data: {error}"
            raise self.place.problem("GS252", message, help="resume from another one") from error
        saved.check(self.batches, self.place)
        origin = self.batches.origin
        if isinstance(origin, Stateful):
            load_state(origin, cast("Tree", saved.state), self.place)
        self.notes = tuple(saved.compare(self.batches, self.place))
        self.epoch, self.index, self.samples, self.taken = saved.epoch, saved.index, saved.samples, saved.taken
        self._rest = None

    def one_pass(self) -> Iterator[Batch]:
        """Yield the batches of the first epoch from its start, for an evaluation; the position stays.

        A source with a state is reset to its state before the first pass, so that every pass is the same.

        >>> sum(feed.rows(batch) for batch in feed.one_pass())
        1408
        """
        index, origin = 0, self.batches.origin
        if isinstance(origin, Stateful) and self._start is None:
            self._start = read_state(origin, self.place)
        try:
            for batch in self.batches.epoch(0):
                index += 1
                yield batch
        except SpecError as error:
            raise self.place.locate(error, Position(index=index)) from error.__cause__
        finally:
            if isinstance(origin, Stateful):
                load_state(origin, self._start, self.place)
                self._rest = None


_WORD = 2**64
_STREAM = 0x7475726E73
"""Separates the draws of sets from every shuffle of samples."""


class SavedRoundRobin(PlainModel):
    """A position in several sets."""

    kind: Literal["turns"]
    """In place of the unit that a position in a single set counts."""
    epoch: NonNegativeInt
    index: NonNegativeInt
    taken: NonNegativeInt
    ended: list[str]
    """The sets that have ended in the epoch under way."""
    sets: dict[str, object]


@dataclass(slots=True, kw_only=True)
class TurnFeed:
    """Batches of several sets; restored from a saved state it returns the very batches that would have followed.

    The sets take turns in their order, and each epoch begins with the first. It ends with the round in which the
    longest set ends; a shorter set starts again, reshuffled where it is shuffled, and continues in the next epoch from
    its position. With ``mix`` the set of each batch is drawn, keyed by the seed and the number of the batch,
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
        """Return notes for the user on the positions that were restored."""
        return tuple(note for feed in self.parts for note in feed.notes)

    @property
    def length(self) -> int | None:
        """Return how many batches an epoch has; None where only reading would show."""
        return find_epoch_length({name: feed.length for name, feed in self.feeds.items()}, self.mix)

    def next(self) -> Batch | None:
        """Return the next batch, which names its set; None where an epoch has ended.

        Raises SpecError as the feed of its set does; the position then stays.
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
        return MarkedBatch(batch or {}, dataset=name)

    def first(self) -> Batch | None:
        """Return the first batch of the run; the position stays."""
        name = self._choose(0, 0)
        batch = self.feeds[name].first()
        return None if batch is None else MarkedBatch(batch, dataset=name)

    def rows(self, batch: Batch) -> int:
        """Return how many samples a batch has."""
        return self.feeds[dataset_of(batch) or next(iter(self.feeds))].rows(batch)

    def attach(self, step: object) -> None:
        """Pass the built step to the sources that use it."""
        for feed in self.parts:
            feed.attach(step)

    def one_pass(self) -> Iterator[Batch]:
        """Yield the batches of every set once, one set after another, for an evaluation."""
        for name, feed in self.feeds.items():
            for batch in feed.one_pass():
                yield MarkedBatch(batch, dataset=name)

    def state(self) -> Tree:
        """Return the positions in all sets."""
        sets: dict[str, object] = {name: feed.state() for name, feed in self.feeds.items()}
        counts = {"epoch": self.epoch, "index": self.index, "taken": self.taken}
        return dict(SavedRoundRobin(kind="turns", **counts, ended=sorted(self.ended), sets=sets))

    def restore(self, tree: Tree) -> None:
        """Go to a saved position; raises SpecError (GS252) where these sets have no such position."""
        try:
            saved = SavedRoundRobin.read(tree)
        except ValueError as error:
            raise self._unfit() from error
        if saved.sets.keys() != self.feeds.keys():
            raise self._unfit()
        for name, feed in self.feeds.items():
            feed.restore(cast("Tree", saved.sets[name]))
        self.epoch, self.index, self.taken = saved.epoch, saved.index, saved.taken
        self.ended = frozenset(saved.ended)

    def _drawn(self) -> tuple[str, ...]:
        """Return the sets that ever have a turn."""
        return tuple(name for name in self.feeds if self.mix is None or self.mix[name] > 0)

    def _choose(self, index: int, taken: int) -> str:
        """Return the set of a batch, given its number in its epoch, and in all."""
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
        """Return the error of a position that these sets do not have."""
        message = f"the checkpoint holds no position in the training sets {', '.join(self.feeds)}"
        return self.place.problem("GS252", message, help="give the run the sets it had then, or start a new one")


def draw(number: float, weights: Mapping[str, float]) -> str:
    """Return the name whose share contains a number from 0 to 1; shares are proportional to weights."""
    share, total = 0.0, sum(weights.values())
    for name, weight in weights.items():
        share += weight / total
        if number < share:
            return name
    return tuple(weights)[-1]


@dataclass(slots=True, kw_only=True)
class GroupFeed:
    """Batches of a source for steps that take several of them.

    An epoch has as many steps as it has whole groups of batches; the rest of it is left out. A position is one between
    two steps, and that of the source.
    """

    feed: Feed
    count: int
    """How many batches a step takes."""

    @property
    def epoch(self) -> int:
        """Return how many epochs have ended."""
        return self.feed.epoch

    @property
    def index(self) -> int:
        """Return how many steps have taken their batches from the epoch under way."""
        return self.feed.index // self.count

    @property
    def taken(self) -> int:
        """Return how many batches were taken in all."""
        return self.feed.taken

    @property
    def parts(self) -> tuple[Feed, ...]:
        """Return the feed of its source."""
        return (self.feed,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user on the position that was restored."""
        return self.feed.notes

    @property
    def length(self) -> int | None:
        """Return how many steps an epoch has; None where only reading would show."""
        return None if self.feed.length is None else self.feed.length // self.count

    def next(self) -> Batch | None:
        """Return the batches of the next step as one; None at the end of an epoch, after which the next one begins."""
        batches: list[Batch] = []
        while len(batches) < self.count:
            batch = self.feed.next()
            if batch is None:
                return None
            batches.append(batch)
        joined = cast("Batch", join_batches(batches, self.feed.place.spec))
        last = batches[-1]  # all have as many rows
        return MarkedBatch(joined, rows=last.rows if isinstance(last, MarkedBatch) else None)

    def first(self) -> Batch | None:
        """Return the first batch of the run; the position stays."""
        return self.feed.first()

    def rows(self, batch: Batch) -> int:
        """Return how many samples the batches of a step have, given one of them or all."""
        return self.feed.rows(batch) * self.count

    def attach(self, step: object) -> None:
        """Pass the built step to a source that uses it."""
        self.feed.attach(step)

    def one_pass(self) -> Iterator[Batch]:
        """Yield the batches of the first epoch one by one, for an evaluation."""
        return self.feed.one_pass()

    def state(self) -> Tree:
        """Return the position in the source."""
        return self.feed.state()

    def restore(self, tree: Tree) -> None:
        """Go to a saved position; raises SpecError (GS252) where the source has no such position."""
        self.feed.restore(tree)


AnyFeed: TypeAlias = Feed | TurnFeed | GroupFeed
"""The batches of a run."""


def open_feed(
    spec: GraphSpec,
    role: str,
    *,
    seed: int,
    allow: Sequence[str] = (),
    directory: Path | None = None,
    dataset: str | None = None,
    share: Share = WHOLE,
) -> AnyFeed:
    """Return the batches of ``data.<role>`` of a spec, from the first one on.

    ``seed`` keys the shuffling. ``allow`` and ``directory`` are the packages and the folder from which sources of the
    user's may be imported; files are found from ``directory``, too. ``dataset`` names one of several sets. ``share``:
    the rows of every batch that this process takes, where several take the batches together; positions, lengths and
    :meth:`Feed.rows` are those of whole batches.

    Raises SpecError: GS201 to GS205 a source that cannot be imported, GS220 to GS229 data that is missing or does not
    fit.

    >>> from graphspec import load
    >>> from runtime.data import open_feed
    >>> feed = open_feed(load("examples/simultaneous-gan/simultaneous-gan.yaml"), "train", seed=0)
    >>> feed.length, feed.next()["image"].shape
    (22, (64, 1, 8, 8))
    """

    def _open(dataset: str | None) -> Feed:
        batches = open_data(spec, role, seed=seed, allow=allow, directory=directory, dataset=dataset, share=share)
        return Feed(batches=batches, place=Place(spec=spec, role=role, dataset=dataset))

    declared = spec.data.get(role)
    if not isinstance(declared, TrainingSets):
        feed = _open(dataset)
        return GroupFeed(feed=feed, count=spec.batches) if role == "train" and spec.batches > 1 else feed
    feeds = {name: _open(name) for name in declared.sets}
    return TurnFeed(feeds=feeds, place=Place(spec=spec, role=role), seed=seed, mix=declared.mix)
