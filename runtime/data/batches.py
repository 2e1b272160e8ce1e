"""Batches of a set of samples: their samples and order in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.data.arrays import Batch
from runtime.data.place import Place, Position

Indices: TypeAlias = npt.NDArray[np.int64]
_WORD = 2**64


class Samples(Protocol):
    """A set of samples that can be read by number."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def take(self, indices: Indices) -> Batch:
        """Return the samples of these numbers as one batch."""
        ...


class Batches(Protocol):
    """The batches that training reads, epoch after epoch."""

    @property
    def kind(self) -> str:
        """Return ``samples`` or ``stream``, the unit in which a position counts."""
        ...

    @property
    def origin(self) -> object:
        """Return the user's object that the samples or batches come from; None for a built-in source."""
        ...

    @property
    def size(self) -> int | None:
        """Return how many samples there are, where that is known."""
        ...

    @property
    def length(self) -> int | None:
        """Return how many batches an epoch has, where that is known."""
        ...

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch; epochs count from 0."""
        ...

    def follow(self, position: Position) -> Iterator[Batch]:
        """Yield the batches after a position in its epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Batches drawn from numbered samples; any position in any epoch can be reached directly."""

    samples: Samples
    place: Place
    seed: int
    size: int
    """The number of samples, which must be the same in every epoch."""
    origin: object = None
    kind: str = "samples"

    @classmethod
    def of(cls, samples: Samples, place: Place, seed: int, origin: object = None) -> Sampled:
        """Return the batches of samples; raise GS227 immediately where the samples do not fill one."""
        made = cls(samples=samples, place=place, seed=seed, size=len(samples), origin=origin)
        if made.size == 0:
            raise place.problem("GS227", "the source has no samples")
        if made.length == 0:
            message = f"{made.size} samples do not fill one batch of {place.declared.batch}"
            raise place.problem("GS227", message, "batch", help="make `batch` smaller, or write `drop_last: false`")
        return made

    @property
    def length(self) -> int:
        """Return how many batches an epoch has."""
        return count_batches(self.size, self.place)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, the same for the same seed and number on every machine."""
        return self.follow(Position(epoch=number))

    def follow(self, position: Position) -> Iterator[Batch]:
        """Yield the batches after a number of samples in an epoch; raise GS225 where the set has changed its size."""
        size = len(self.samples)
        if size != self.size:
            message = f"the source has {size} samples now, it had {self.size} when it was opened"
            help = "a source of numbered samples must not change; one that grows gives batches (__iter__)"
            raise self.place.problem("GS225", message, help=help)
        declared = self.place.declared
        order = epoch_order(self.size, shuffle=declared.shuffle, seed=self.seed, epoch=position.epoch)
        rest = order[position.samples :]
        for number in range(count_batches(len(rest), self.place)):
            yield self.samples.take(rest[number * declared.batch : (number + 1) * declared.batch])


def count_batches(samples: int, place: Place) -> int:
    """Return how many batches a number of samples gives, as `batch` and `drop_last` say."""
    full, rest = divmod(samples, place.declared.batch)
    return full + (rest > 0 and not place.declared.drops_last(place.role))


def epoch_order(length: int, *, shuffle: bool, seed: int, epoch: int) -> Indices:
    """Return the order of an epoch's samples; each epoch has its own Philox stream, so it can be drawn alone."""
    if not shuffle:
        return np.arange(length, dtype=np.int64)
    key = np.array([seed % _WORD, epoch % _WORD], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(length)
