"""Batches of numbered samples or of an iterable, and a user's own source of either."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from graphspec.diagnostics import SpecError
from runtime.data.arrays import (
    FORMS,
    Array,
    Batch,
    MarkedBatch,
    as_mapping,
    column_names,
    count_rows,
    fit,
    pick,
    select,
)
from runtime.data.place import Place, Position
from runtime.data.share import WHOLE, Share
from runtime.engine.imports import resolve
from runtime.problems import describe, raised_in
from runtime.state import KEPT, Tree

Indices: TypeAlias = npt.NDArray[np.int64]
_WORD = 2**64
_AHEAD = 256 * 1024
"""How many bytes of stored samples are copied at once, in whole batches."""


class Samples(Protocol):
    """A set of samples that can be read by number."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def take(self, indices: Indices) -> Batch:
        """Return the samples of these numbers as one batch."""
        ...

    def split(self, indices: Indices, rows: int) -> Iterator[Batch]:
        """Yield the samples of these numbers in batches of so many, the last of fewer where they do not divide."""
        ...


class Batches(Protocol):
    """The batches that training reads, epoch after epoch: of each the rows of this process."""

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

    def count(self, batch: Batch, taken: int) -> int:
        """Return how many samples all processes have of a batch, after so many samples of its epoch."""
        ...


class Sampled(Struct, frozen=True, kw_only=True):
    """Batches drawn from numbered samples; any position in any epoch can be reached directly."""

    samples: Samples
    place: Place
    seed: int
    size: int
    """The number of samples, which must be the same in every epoch."""
    per_batch: int
    """The number of samples in every batch but the last."""
    share: Share = WHOLE
    origin: object = None
    kind: str = "samples"

    @classmethod
    def of(cls, samples: Samples, place: Place, seed: int, share: Share = WHOLE, origin: object = None) -> Sampled:
        """Return the batches of samples; raise GS227 immediately where they do not fill one, or not all processes."""
        size, per_batch = len(samples), place.declared.batch
        made = cls(samples=samples, place=place, seed=seed, size=size, per_batch=per_batch, share=share, origin=origin)
        if made.size == 0:
            raise place.problem("GS227", "the source has no samples")
        if made.length == 0:
            message = f"{made.size} samples do not fill one batch of {place.declared.batch}"
            raise place.problem("GS227", message, "batch", help="make `batch` smaller, or write `drop_last: false`")
        if share.count > 1:
            last = made.size - (made.length - 1) * place.declared.batch
            share.bounds(min(last, place.declared.batch), place)
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
        rest = rest[: count_batches(len(rest), self.place) * declared.batch]
        if self.share.count == 1:
            yield from self.samples.split(rest, declared.batch)
            return
        for start in range(0, len(rest), declared.batch):  # every process reads its own rows only
            chosen = rest[start : start + declared.batch]
            begin, end = self.share.bounds(len(chosen), self.place)
            yield MarkedBatch(self.samples.take(chosen[begin:end]), rows=len(chosen))

    def count(self, batch: Batch, taken: int) -> int:
        """Return how many samples were drawn for a batch, without a look at it."""
        return min(self.per_batch, self.size - taken)


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


@contextmanager
def blamed(place: Place) -> Generator[None]:
    """Turn any exception of the user's code into GS226 with the user's frames; problems pass unchanged."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        message, help = f"the source raised {describe(error)}", "the error comes from the source's own code"
        raise place.problem("GS226", message, notes=raised_in(error), help=help) from error


class Stored(Struct, frozen=True, kw_only=True):
    """Arrays of equal leading length, by input."""

    arrays: Mapping[str, Array]
    length: int

    def __len__(self) -> int:
        """Return the leading length."""
        return self.length

    def take(self, indices: Indices) -> Batch:
        """Return the rows of these numbers, copied."""
        return {name: array[indices] for name, array in self.arrays.items()}

    def split(self, indices: Indices, rows: int) -> Iterator[Batch]:
        """Yield the rows of these numbers in batches, copied; small ones are parts of one copy, which takes less time.

        Between two steps everything that runs is no longer in the caches of the processor, so little should run.
        """
        size = sum(array.nbytes for array in self.arrays.values()) / max(1, self.length) * rows
        ahead = max(1, int(_AHEAD // max(1, size))) * rows
        for start in range(0, len(indices), ahead):
            chosen = indices[start : start + ahead]
            taken = {name: array[chosen] for name, array in self.arrays.items()}
            for first in range(0, len(chosen), rows):
                yield {name: array[first : first + rows] for name, array in taken.items()}


def store(names: Collection[str], read: Callable[[str], Array], place: Place) -> Stored:
    """Return the arrays that the spec's inputs name, made to fit; ``names`` is what the source offers.

    Raises SpecError: GS223 an input is not offered, GS224 unequal lengths, GS228 wrong shape or dtype.
    """
    arrays: dict[str, Array] = {}
    for name, column in column_names(place).items():
        arrays[name] = fit(pick(column, name, names, read, place), place.spec.inputs[name], name, place)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise place.problem("GS224", f"the arrays have different numbers of samples ({shown})")
    return Stored(arrays=arrays, length=next(iter(lengths.values()), 0))


_CALL = "state_dict()"


@runtime_checkable
class Stateful(Protocol):
    """A source whose position can be saved and restored."""

    def state_dict(self) -> object:
        """Return numbers, text, arrays, and lists and mappings of them."""
        ...

    def load_state_dict(self, state: Tree) -> object:
        """Restore a state; the next `iter` continues from there."""
        ...


@runtime_checkable
class _ArrayLike(Protocol):
    """Something that numpy can read as an array, such as a tensor of a framework."""

    def __array__(self) -> npt.NDArray[np.generic]:
        """Return the array."""
        ...


def read_state(source: Stateful, place: Place) -> Tree:
    """Return a copy of a source's state. Raises SpecError: GS226 it raised, GS253 it cannot be saved."""
    with blamed(place):
        state = source.state_dict()
    return _copy(state, _CALL, place)


def load_state(source: Stateful, state: Tree, place: Place) -> None:
    """Restore the state of a source, in copies of the arrays. Raises SpecError: GS226 it raised."""
    owned = _copy(state, _CALL, place)
    with blamed(place):
        source.load_state_dict(owned)


def _copy(value: object, path: str, place: Place) -> Tree:
    """Return a tree of plain data and new arrays; ``path`` is the way to the value as a user would write it."""
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            if not math.isfinite(value):
                expected = "a finite number, or an array that holds it"
                raise _unkeepable(path, f"the number {float(value)}", expected, place)
            return float(value)
        case Mapping():
            found: dict[str, Tree] = {}
            for key, entry in cast("Mapping[object, object]", value).items():
                if not isinstance(key, str):
                    raise _unkeepable(path, f"the key {key!r}", "a text", place)
                found[key] = _copy(entry, f"{path}[{key!r}]", place)
            return found
        case list() | tuple():
            entries = cast("list[object]", value)
            return [_copy(entry, f"{path}[{index}]", place) for index, entry in enumerate(entries)]
        case _:  # an array, or something that can be read as one
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            if not isinstance(value, _ArrayLike):
                raise _unkeepable(path, f"a value of type {kind}", "numbers, text, arrays, lists or mappings", place)
            try:
                array: npt.NDArray[np.generic] = np.asarray(value).copy()
            except Exception as error:
                unread = f"a value of type {kind} that numpy cannot read ({describe(error)})"
                raise _unkeepable(path, unread, "an array of the host", place) from error
            if array.dtype.name not in KEPT:
                raise _unkeepable(path, f"an array of {array.dtype}", "an array of numbers", place)
            return array


def _unkeepable(path: str, found: str, expected: str, place: Place) -> SpecError:
    message = f"a checkpoint cannot keep {path} of the source: found {found}, expected {expected}"
    return place.problem("GS253", message, help="return plain data: code is never stored in a checkpoint")


class Streamed(Struct, kw_only=True):
    """Batches of an object that can only be iterated; it must be able to start again for every epoch."""

    origin: Iterable[object]
    place: Place
    share: Share = WHOLE
    passes: int = 0
    """How many epochs this process has begun."""
    kind: str = "stream"

    @property
    def size(self) -> None:
        """Return None: how many samples there are is not known."""

    @property
    def length(self) -> None:
        """Return None: how many batches there are is not known."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of one more pass over the object, regardless of its number."""
        empty = True
        for batch in self._read():
            empty = False
            yield batch
        if empty and self.passes == 1:
            help = "a batch that is not full counts only with `drop_last: false`"
            raise self.place.problem("GS227", "the source has no full batch", help=help)
        if empty:
            help = "make it a class with __iter__, not a generator that runs once"
            raise self.place.problem("GS225", "the source gave no batches for a second pass", help=help)

    def follow(self, position: Position) -> Iterator[Batch]:
        """Yield the batches after a position.

        An object without a state is read again up to there, because it may have a random order of its own.
        """
        if isinstance(self.origin, Stateful):
            yield from self.epoch(position.epoch) if position.index == 0 else self._read()
            return
        while self.passes < position.epoch:
            for _ in self.epoch(self.passes):
                pass
        rest = self.epoch(position.epoch)
        for number in range(position.index):
            if next(rest, None) is None:
                taken = f"{position.index} had been taken before the run was stopped"
                help = "restore what the source had then, or start a new run"
                raise self.place.problem("GS252", f"the source ended after {number} batches, {taken}", help=help)
        yield from rest

    def count(self, batch: Batch, taken: int) -> int:
        """Return how many samples the object gave."""
        return count_rows(batch, self.place.spec)

    def _read(self) -> Iterator[Batch]:
        """Yield the batches of one pass: the full ones, and short ones where `drop_last` admits them."""
        self.passes += 1
        declared = self.place.declared
        with blamed(self.place):
            iterator = iter(self.origin)
        while True:
            with blamed(self.place):
                try:
                    given = next(iterator)
                except StopIteration:
                    return
            batch = select(as_mapping(given, self.place), self.place)
            rows = count_rows(batch, self.place.spec)
            if rows > declared.batch:
                message = f"the source gave a batch of {rows} samples, not {declared.batch}"
                raise self.place.problem("GS225", message, "batch")
            if rows == declared.batch or not declared.drops_last(self.place.role):
                yield self.share.take(batch, self.place)  # the object gives whole batches


@runtime_checkable
class Numbered(Protocol):
    """The first form: samples by number."""

    def __len__(self) -> int:
        """Return how many samples there are."""
        ...

    def __getitem__(self, index: int) -> object:
        """Return one sample: a mapping of names to arrays."""
        ...


class Collected(Struct, frozen=True, kw_only=True):
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
        rows = [as_mapping(sample, self.place) for sample in found]
        if any(row.keys() != rows[0].keys() for row in rows):
            raise self.place.problem("GS225", "the samples of the source do not all have the same names", help=FORMS)
        try:
            batch = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
        except ValueError as error:
            raise self.place.problem("GS225", f"the samples of the source do not fit together: {error}") from error
        return select(batch, self.place)

    def split(self, indices: Indices, rows: int) -> Iterator[Batch]:
        """Yield the samples of these numbers in batches, each read when it is due."""
        return (self.take(indices[start : start + rows]) for start in range(0, len(indices), rows))


def open_custom(
    place: Place, *, seed: int, allow: Sequence[str], directory: Path | None, share: Share = WHOLE
) -> Batches:
    """Import a user's class, construct it with ``args``, and return its batches.

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
            arrays = cast("Mapping[str, object]", source)  # a scalar in it becomes an array of one sample
            whole = store(arrays, lambda name: np.atleast_1d(np.asarray(arrays[name])), place)
            return Sampled.of(whole, place, seed, share)
        case Numbered():
            return Sampled.of(Collected(samples=source, place=place), place, seed, share, source)
        case Iterable():
            if declared.shuffle:
                message = "`shuffle` needs samples by number, and this source gives whole batches"
                help = "shuffle in the class, or give it __len__ and __getitem__"
                raise place.problem("GS225", message, "shuffle", help=help)
            return Streamed(origin=cast("Iterable[object]", source), place=place, share=share)
        case _:
            raise place.problem(
                "GS225", f"an object of type {type(source).__name__!r} is not a source of data", help=FORMS
            )
