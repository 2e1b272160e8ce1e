"""The built-in sources of data, digits and files, and the opening of the data set of a role."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import cast

import numpy as np
import numpy.lib.format as npy
from msgspec import Struct
from numpy.lib.npyio import NpzFile

from graphspec.declare.data import DIGITS, FILES, DataSource, TrainingSets, describe_digits, find_ink
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Span, SpecError
from graphspec.words import closest
from runtime.data.arrays import Array, column_names
from runtime.data.place import Place
from runtime.data.share import WHOLE, Share
from runtime.data.source import Batches, Sampled, Stored, count_batches, open_custom, store
from runtime.problems import problem, system_reason

_HELP = "the first line names the columns, every other line has one cell for each, with commas between them"


class Table(Struct, frozen=True, kw_only=True):
    """The cells of a file as text; ``lines`` are the numbers of the lines in which the rows end."""

    path: Path
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]

    def column(self, name: str, place: Place) -> Array:
        """Return a column: int64 where all its cells are whole numbers, else float64; raise GS222 for other cells."""
        if self.names.count(name) > 1:
            raise place.problem("GS222", f"{str(self.path)!r} has {self.names.count(name)} columns {name!r}", "path")
        index = self.names.index(name)
        cells = [row[index] for row in self.rows]
        try:
            return np.array([_whole(cell) for cell in cells], dtype=np.int64)
        except (ValueError, OverflowError):
            pass
        numbers: list[float] = []
        for line, cell in zip(self.lines, cells, strict=True):
            try:
                numbers.append(_real(cell))
            except ValueError as error:
                found = f"{cell!r}" if cell.strip() else "an empty cell"
                message = f"{self.path}:{line}: expected a number in the column {name!r}, found {found}"
                help = "text becomes numbers before it is read here, such as one whole number for each class"
                raise place.problem("GS222", message, "path", help=help) from error
        return np.array(numbers, dtype=np.float64)


def read_table(place: Place, directory: Path) -> Stored:
    """Return the columns that the spec's inputs name; the path is relative to ``directory``, the spec's own.

    Raises SpecError: GS221 unreadable or not a table, GS222 a cell that is not a number, and what :func:`store` raises.
    """
    table = read_cells(place, directory)
    return store(table.names, lambda name: table.column(name, place), place)


def read_cells(place: Place, directory: Path) -> Table:
    """Return a file's cells as text. Raises SpecError: GS221 unreadable, without a header, or with uneven rows."""
    path = directory / (place.declared.path or "")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise place.problem("GS221", f"cannot read {str(path)!r}: {system_reason(error)}", "path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a table of text", "path", help=_HELP) from error
    if not numbered:
        raise place.problem("GS221", f"{str(path)!r} is empty", "path", help=_HELP)
    (line, header), *body = numbered
    names = tuple(cell.strip() for cell in header)
    try:
        for name in names:
            _real(name)
    except ValueError:
        pass  # one that is not a number is enough
    else:
        message = f"{path}:{line}: expected the names of the columns, found the numbers {', '.join(names)}"
        raise place.problem("GS221", message, "path", help=_HELP)
    for line, row in body:
        if len(row) != len(names):
            message = f"{path}:{line}: the header names {len(names)} columns, found {len(row)} cells"
            raise place.problem("GS221", message, "path", help=_HELP)
    return Table(path=path, names=names, rows=[row for _, row in body], lines=[line for line, _ in body])


def _whole(cell: str) -> int:
    """Return a whole number; raise ValueError for other text, and for Python's underscores in a number."""
    if "_" in cell:
        raise ValueError(cell)
    return int(cell)


def _real(cell: str) -> float:
    """Return a number; raise ValueError as :func:`_whole` does."""
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


_SAVE = "write it with numpy.savez(path, image=..., label=...)"


def read_npz(place: Place, directory: Path) -> Stored:
    """Return the arrays that the spec's inputs name; the path is relative to ``directory``, the spec's own.

    Raises SpecError: GS221 unreadable or not an npz, GS222 not plain numbers, and what :func:`store` raises.
    """
    path = directory / (place.declared.path or "")
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, NpzFile):
                message = f"{str(path)!r} holds one array without a name"
                raise place.problem("GS221", message, "path", help=_SAVE)
            arrays = cast("Mapping[str, object]", held)
            return store(arrays, lambda name: _read_array(arrays, name, path, place), place)
    except OSError as error:
        raise place.problem("GS221", f"cannot read {str(path)!r}: {system_reason(error)}", "path") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a file of arrays", "path", help=_SAVE) from error


def _read_array(held: Mapping[str, object], name: str, path: Path, place: Place) -> Array:
    try:
        array: Array = np.asarray(held[name])
    except ValueError as error:
        raise _not_numbers(name, path, place) from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise _not_numbers(name, path, place)
    return array


def _not_numbers(name: str, path: Path, place: Place) -> Exception:
    message = f"{name!r} in {str(path)!r} is not an array of numbers with one row for each sample"
    notes = ("Python objects are never read: unpickling them can run any code",)
    return place.problem("GS222", message, "path", notes=notes, help=_SAVE)


_WHITE = 16.0
"""The value of full ink in the file."""


def read_digits(place: Place) -> Stored:
    """Return what the inputs name of ``image`` float32 [n, 1, 8, 8] (or [n, 64]) and ``label`` int64 [n].

    Raises what :func:`store` raises; the options were checked when the spec was loaded.
    """
    split, ink = place.declared.part(place.role), find_ink(place.declared)
    assert ink is not None
    low, high = ink
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        image, label, is_test = held["image"], held["label"], held["is_test"]
    chosen = slice(None) if split == "all" else is_test == (split == "test")
    scaled = low + image[chosen] * ((high - low) / _WHITE)
    arrays = {"image": scaled.astype(np.float32), "label": label[chosen].astype(np.int64)}
    sizes = {name: (each.shape or ())[1:] for name, each in describe_digits(place.declared).items()}
    offered = {name: array.reshape(-1, *sizes[name]) for name, array in arrays.items()}
    return store(offered, lambda name: offered[name], place)


def open_data(
    spec: GraphSpec,
    role: str,
    *,
    seed: int,
    allow: Sequence[str] = (),
    directory: Path | None = None,
    dataset: str | None = None,
    share: Share = WHOLE,
) -> Batches:
    """Return the batches of ``data.<role>``; they contain only the arrays of the spec's inputs.

    ``seed`` orders the samples where the source has no seed of its own; ``directory`` is where relative paths start
    and where a user's own source may be imported from, if ``allow`` names it; ``dataset`` is the training set, where
    there are several, or for another role the data set of its batches; ``share``: the rows of every batch that this
    process takes.
    Raises SpecError: GS201-GS205, GS220-GS228.
    """
    if role not in spec.data:
        message = f"the spec {spec.name!r} does not say where its batches come from: it has no `data.{role}`"
        help = f"add, for example: data: {{{role}: {{source: digits, batch: 64, shuffle: true}}}}"
        raise problem("GS220", message, span=spec.span("data", key=True), help=help, texts=spec.texts())
    place = Place(spec=spec, role=role, dataset=dataset)
    declared = place.declared
    order = seed if declared.seed is None else declared.seed
    if declared.class_path is not None:
        return open_custom(place, seed=order, allow=allow, directory=directory, share=share)
    match place.source:
        case "digits":
            samples = read_digits(place)
        case "npz":
            samples = read_npz(place, directory or Path())
        case _:
            samples = read_table(place, directory or Path())
    return Sampled.of(samples, place, order, share)


def find_classes(spec: GraphSpec, roles: Iterable[str]) -> dict[str, Span | None]:
    """Return the classes of the user's that the data of some roles names, and their places."""
    found: dict[str, Span | None] = {}
    for role in roles:
        declared = spec.data.get(role)
        for name in declared.sets if isinstance(declared, TrainingSets) else (None,):
            source = spec.source(role, name)
            if source is not None and source.class_path is not None:
                path = Place(spec=spec, role=role, dataset=name).path
                found[source.class_path] = spec.span(*path, "class") or spec.span(*path)
    return found


def replace_source(spec: GraphSpec, role: str, path: Path) -> GraphSpec:
    """Return a spec whose ``data.<role>`` is the file at ``path``, read as the declared set was: batch and columns.

    A spec without that role takes them from ``train``. ``path`` is absolute, or relative to where the spec's own paths
    start. Raises SpecError: GS220 the spec declares no data, GS221 not a file that a source reads.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FILES:
        near = closest(path.name, spec.data, 1)
        meant = f"; did you mean the set {near[0]!r}?" if near else ""
        names = ", ".join(spec.data) or "none"
        message = f"{path.name!r} is neither a set of the spec nor a file of the kinds {' and '.join(FILES)}{meant}"
        help = "name a set, or a file `data.npz`"
        raise problem("GS221", message, notes=(f"sets of the spec: {names}",), help=help)
    declared = spec.source(role) or spec.source("train")
    if declared is None:
        message = (
            f"the spec {spec.name!r} does not say how its data is read: it has neither `data.{role}` nor `data.train`"
        )
        raise problem(
            "GS220", message, help=f"add it: data: {{{role}: {{source: {kind}, path: {path.name}, batch: 64}}}}"
        )
    source = DataSource(
        source=kind,
        path=str(path),
        batch=declared.batch,
        columns=declared.columns,
        drop_last=declared.drop_last if role in spec.data else None,
    )
    return spec.model_copy(update={"data": {**spec.data, role: source}})


_BROKEN = (OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Exceptions of reading a missing, damaged or locked file."""


def find_length(spec: GraphSpec, role: str, directory: Path | None = None) -> int | None:
    """Return how many batches an epoch of ``data.<role>`` has; None where that is not known, or there are none.

    It is not known for a user's class before it is made, and for a file that is missing or damaged.
    """
    train = spec.data.get(role)
    if isinstance(train, TrainingSets):
        return find_epoch_length({name: _find_length(spec, role, name, directory) for name in train.sets}, train.mix)
    length = _find_length(spec, role, None, directory)
    return length if length is None or role != "train" else length // spec.batches


def find_epoch_length(lengths: Mapping[str, int | None], mix: Mapping[str, float] | None) -> int | None:
    """Return how many batches an epoch of several sets has; None where one of them is of unknown length.

    Sets that take turns have as many rounds as the longest set has batches; with ``mix``, an epoch has as many batches
    as all sets that are drawn.
    """
    drawn = [length for name, length in lengths.items() if mix is None or mix[name] > 0]
    known = [length for length in drawn if length is not None]
    if len(known) < len(drawn):
        return None
    return sum(known) if mix is not None else len(lengths) * max(known)


def _find_length(spec: GraphSpec, role: str, dataset: str | None, directory: Path | None) -> int | None:
    """Return how many batches an epoch of one set has; None where that is not known, or there are none."""
    source = spec.source(role, dataset)
    if source is None or source.class_path is not None:
        return None
    place = Place(spec=spec, role=role, dataset=dataset)
    try:
        match place.source:
            case "digits":
                samples = DIGITS[place.declared.part(role)]
            case "npz":  # the leading size of an array, from its header alone
                columns = next(iter(column_names(place).values()), "")
                name = columns if isinstance(columns, str) else columns[0]
                path = (directory or Path()) / (place.declared.path or "")
                with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
                    version = npy.read_magic(file)
                    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    samples: int = read(file)[0][0]
            case _:
                samples = len(read_cells(place, directory or Path()).rows)
        return count_batches(samples, place) or None
    except (SpecError, *_BROKEN):
        return None
