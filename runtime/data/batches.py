"""Batches of a set of samples: which samples, in which order, in which epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.data.arrays import Batch
from runtime.data.place import Place

Indices: TypeAlias = npt.NDArray[np.int64]
_WORD = 2**64


class Samples(Protocol):
    """A set of samples that can be asked for by number."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def take(self, indices: Indices) -> Batch:
        """Return the samples of these numbers as one batch."""
        ...


class Batches(Protocol):
    """What training reads: the batches of one epoch after another."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch; epochs count from 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Batches drawn from numbered samples."""

    samples: Samples
    place: Place
    seed: int

    @classmethod
    def of(cls, samples: Samples, place: Place, seed: int) -> Sampled:
        """Return the batches of samples; raise GS227 at once where those do not fill one."""
        made = cls(samples=samples, place=place, seed=seed)
        made.count()
        return made

    def count(self) -> int:
        """Return how many samples an epoch takes; raise GS227 where they do not fill a batch."""
        declared = self.place.spec.data[self.place.role]
        length = len(self.samples)
        taken = length - length % declared.batch if declared.drops_last(self.place.role) else length
        if taken == 0:
            raise _too_few(self.place, length, declared.batch)
        return taken

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, the same for the same seed and number on every machine."""
        declared = self.place.spec.data[self.place.role]
        end = self.count()
        order = epoch_order(len(self.samples), shuffle=declared.shuffle, seed=self.seed, epoch=number)
        for start in range(0, end, declared.batch):
            yield self.samples.take(order[start : min(start + declared.batch, end)])


def epoch_order(length: int, *, shuffle: bool, seed: int, epoch: int) -> Indices:
    """Return the order of an epoch's samples; each epoch has its own Philox stream, so any one can be drawn alone."""
    if not shuffle:
        return np.arange(length, dtype=np.int64)
    key = np.array([seed % _WORD, epoch % _WORD], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(length)


def endless(batches: Batches) -> Iterator[Batch]:
    """Yield the batches of epoch 0, 1, 2, ..."""
    number = 0
    while True:
        yield from batches.epoch(number)
        number += 1


def _too_few(place: Place, length: int, batch: int) -> Exception:
    if length == 0:
        return place.problem("GS227", "the source has no samples")
    help = "make `batch` smaller, or write `drop_last: false`"
    return place.problem("GS227", f"{length} samples do not fill one batch of {batch}", "batch", help=help)
