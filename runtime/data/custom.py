"""A user's own source: an object that gives samples by number, or whole batches one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import numpy as np

from runtime.data.arrays import FORMS, Batch, as_mapping, select
from runtime.data.batches import Batches, Indices, Sampled
from runtime.data.blame import blamed
from runtime.data.place import Place
from runtime.data.stored import Stored, store
from runtime.data.streamed import Streamed
from runtime.imports import resolve


@runtime_checkable
class Numbered(Protocol):
    """The first form: samples by number."""

    def __len__(self) -> int:
        """Return how many samples there are."""
        ...

    def __getitem__(self, index: int) -> object:
        """Return one sample: a mapping of names to arrays."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Samples of a user's object, stacked into batches."""

    samples: Numbered
    place: Place

    def __len__(self) -> int:
        """Return how many samples the object has."""
        with blamed(self.place):
            return len(self.samples)

    def take(self, indices: Indices) -> Batch:
        """Return the samples of these numbers, stacked."""
        with blamed(self.place):
            found = [self.samples[int(index)] for index in indices]
        return select(_stack([as_mapping(sample, self.place) for sample in found], self.place), self.place)


def open_custom(place: Place, *, seed: int, allow: Sequence[str], directory: Path | None) -> Batches:
    """Import a user's class, make it with ``args``, and return the batches it gives.

    Raises SpecError: GS201-GS205, GS236 the import, GS226 it raised, GS225 it has none of the three forms.
    """
    declared = place.declared
    span = place.spec.span(*place.path, "class") or place.spec.span(*place.path)
    made = resolve(declared.class_path or "", allow, directory=directory, span=span, texts=place.spec.texts())
    if not callable(made):
        raise place.problem("GS225", f"{declared.class_path!r} is not a class or a function", help=FORMS)
    with blamed(place):
        source = made(**declared.args)
    match source:
        case Mapping():
            return Sampled.of(_whole(cast("Mapping[str, object]", source), place), place, seed)
        case Numbered():
            return Sampled.of(Collected(samples=source, place=place), place, seed, origin=source)
        case Iterable():
            return _stream(cast("Iterable[object]", source), place)
        case _:
            raise place.problem(
                "GS225", f"an object of type {type(source).__name__!r} is not a source of data", help=FORMS
            )


def _whole(arrays: Mapping[str, object], place: Place) -> Stored:
    """Return whole arrays as samples; a single number is no array of samples."""
    return store(arrays, lambda name: np.atleast_1d(np.asarray(arrays[name])), place)


def _stream(batches: Iterable[object], place: Place) -> Streamed:
    """Refuse what only a source of numbered samples can do."""
    if place.declared.shuffle:
        message = "`shuffle` needs samples by number, and this source gives whole batches"
        raise place.problem(
            "GS225", message, "shuffle", help="shuffle in the class, or give it __len__ and __getitem__"
        )
    return Streamed(origin=batches, place=place)


def _stack(rows: Sequence[Mapping[str, object]], place: Place) -> Mapping[str, object]:
    """Return the samples as one batch: every array with a new leading dimension."""
    if any(row.keys() != rows[0].keys() for row in rows):
        raise place.problem("GS225", "the samples of the source do not all have the same names", help=FORMS)
    try:
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    except ValueError as error:
        raise place.problem("GS225", f"the samples of the source do not fit together: {error}") from error
