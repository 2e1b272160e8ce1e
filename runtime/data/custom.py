"""A user's own source: an object that gives samples by number, or whole batches one after another."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import numpy as np

from graphspec.diagnostics import SpecError
from runtime.data.arrays import Array, Batch, column_names, fit, missing_column
from runtime.data.batches import Batches, Indices, Sampled
from runtime.data.place import Place
from runtime.data.stored import Stored, store
from runtime.frames import describe, raised_in
from runtime.imports import resolve

_FORMS = "it must give samples by number (__len__ and __getitem__), batches (__iter__), or be a mapping of whole arrays"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """Batches as a user's object gives them; it must be able to start again for every epoch."""

    batches: Iterable[object]
    place: Place

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of one pass over the object."""
        empty = True
        for given in self._guarded():
            batch = select(as_mapping(given, self.place), self.place)
            if self._is_used(batch):
                empty = False
                yield batch
        if empty:
            raise self._exhausted(number)

    def _is_used(self, batch: Batch) -> bool:
        """Tell whether a batch is full, or may be short; refuse one with more samples than the spec says."""
        declared = self.place.spec.data[self.place.role]
        rows = max((len(value) for value in batch.values() if isinstance(value, Sized)), default=0)
        if rows > declared.batch:
            raise self.place.problem(
                "GS225", f"the source gave a batch of {rows} samples, not {declared.batch}", "batch"
            )
        return rows == declared.batch or not declared.drops_last(self.place.role)

    def _guarded(self) -> Iterator[object]:
        with blamed(self.place):
            iterator = iter(self.batches)
        while True:
            with blamed(self.place):
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
            yield batch

    def _exhausted(self, number: int) -> Exception:
        if number == 0:
            help = "a batch that is not full counts only with `drop_last: false`"
            return self.place.problem("GS227", "the source has no full batch", help=help)
        help = "make it a class with __iter__, not a generator that runs once"
        return self.place.problem("GS225", "the source gave no batches for a second pass", help=help)


def open_custom(place: Place, *, seed: int, allow: Sequence[str], directory: Path | None) -> Batches:
    """Import a user's class, make it with ``args``, and return the batches it gives.

    Raises SpecError: GS201-GS205, GS236 the import, GS226 it raised, GS225 it has none of the three forms.
    """
    declared = place.spec.data[place.role]
    span = place.spec.span("data", place.role, "class") or place.spec.span("data", place.role)
    made = resolve(declared.class_path or "", allow, directory=directory, span=span, texts=place.spec.texts())
    if not callable(made):
        raise place.problem("GS225", f"{declared.class_path!r} is not a class or a function", help=_FORMS)
    with blamed(place):
        source = made(**declared.args)
    match source:
        case Mapping():
            return Sampled.of(_whole(cast("Mapping[str, object]", source), place), place, seed)
        case Numbered():
            return Sampled.of(Collected(samples=source, place=place), place, seed)
        case Iterable():
            return _stream(cast("Iterable[object]", source), place)
        case _:
            raise place.problem(
                "GS225", f"an object of type {type(source).__name__!r} is not a source of data", help=_FORMS
            )


def _whole(arrays: Mapping[str, object], place: Place) -> Stored:
    """Return whole arrays as samples; a single number is no array of samples."""
    return store(arrays, lambda name: np.atleast_1d(np.asarray(arrays[name])), place)


def _stream(batches: Iterable[object], place: Place) -> Streamed:
    """Refuse what only a source of numbered samples can do."""
    if place.spec.data[place.role].shuffle:
        message = "`shuffle` needs samples by number, and this source gives whole batches"
        raise place.problem(
            "GS225", message, "shuffle", help="shuffle in the class, or give it __len__ and __getitem__"
        )
    return Streamed(batches=batches, place=place)


def _stack(rows: Sequence[Mapping[str, object]], place: Place) -> Mapping[str, object]:
    """Return the samples as one batch: every array with a new leading dimension."""
    if any(row.keys() != rows[0].keys() for row in rows):
        raise place.problem("GS225", "the samples of the source do not all have the same names", help=_FORMS)
    try:
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    except ValueError as error:
        raise place.problem("GS225", f"the samples of the source do not fit together: {error}") from error


def select(offered: Mapping[str, object], place: Place) -> Batch:
    """Return what the spec's inputs name; arrays are made to fit, tensors of a framework are left to the step."""
    chosen: dict[str, object] = {}
    for name, column in column_names(place).items():
        if column not in offered:
            raise missing_column(place, name, column, offered)
        value = offered[column]
        chosen[name] = (
            fit(cast("Array", value), place.spec.inputs[name], name, place) if isinstance(value, np.ndarray) else value
        )
    return chosen


def as_mapping(value: object, place: Place) -> Mapping[str, object]:
    """Return a sample or a batch as the mapping it must be."""
    if not isinstance(value, Mapping):
        found = type(value).__name__
        raise place.problem(
            "GS225", f"the source gave an object of type {found!r}, expected a mapping of names to arrays", help=_FORMS
        )
    return cast("Mapping[str, object]", value)


@contextmanager
def blamed(place: Place) -> Generator[None]:
    """Turn whatever the user's code raises into GS226 with the user's frames; problems pass as they are."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        message, help = f"the source raised {describe(error)}", "the error comes from the source's own code"
        raise place.problem("GS226", message, notes=raised_in(error), help=help) from error
