"""Opening a data set: finds the source of the samples of a role."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy.lib.format as npy

from graphspec.declare.data import FILES, DataSource, TrainingSets
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from graphspec.suggestions import closest
from runtime.data.arrays import column_names
from runtime.data.batches import Batches, Sampled, count_batches
from runtime.data.files import read_cells, read_digits, read_npz, read_table
from runtime.data.place import Place
from runtime.data.source import open_custom
from runtime.problems import problem

_OPTIONS = {"split": ("digits",), "path": FILES, "args": ("digits", "class")}
"""Options that not every source has -> the sources that have them."""


def open_data(
    spec: GraphSpec,
    role: str,
    *,
    seed: int,
    allow: Sequence[str] = (),
    directory: Path | None = None,
    dataset: str | None = None,
) -> Batches:
    """Return the batches of ``data.<role>``; they contain only the arrays of the spec's inputs.

    ``seed`` orders the samples where the source has no seed of its own; ``directory`` is where relative paths start
    and where a user's own source may be imported from, if ``allow`` names it; ``dataset`` is the training set, where
    there are several, or for another role the data set of its batches.
    Raises SpecError: GS201-GS205, GS220-GS229.
    """
    if role not in spec.data:
        message = f"the spec {spec.name!r} does not say where its batches come from: it has no `data.{role}`"
        help = f"add, for example: data: {{{role}: {{source: digits, batch: 64, shuffle: true}}}}"
        raise problem("GS220", message, span=spec.span("data", key=True), help=help, texts=spec.texts())
    place = Place(spec=spec, role=role, dataset=dataset)
    declared = place.declared
    _refuse_foreign_options(place, declared)
    order = seed if declared.seed is None else declared.seed
    if declared.class_path is not None:
        return open_custom(place, seed=order, allow=allow, directory=directory)
    match place.source:
        case "digits":
            samples = read_digits(place)
        case "npz":
            samples = read_npz(place, directory or Path())
        case _:
            samples = read_table(place, directory or Path())
    return Sampled.of(samples, place, order)


def _refuse_foreign_options(place: Place, declared: DataSource) -> None:
    """Refuse options that the source does not read."""
    kind = declared.source if declared.class_path is None else "class"
    for name, kinds in _OPTIONS.items():
        if name in declared.model_fields_set and kind not in kinds:
            owners = " and ".join(f"`{owner}`" for owner in kinds)
            raise place.problem("GS229", f"`{name}` means nothing to a source `{kind}`; it belongs to {owners}", name)
    for name, column in declared.columns.items():
        if kind not in FILES and not isinstance(column, str):
            message = f"a source `{kind}` gives each input as one array, found a list of {len(column)} columns"
            raise place.problem("GS229", message, "columns", name, help="name one array")


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
        return count_turns({name: _find_length(spec, role, name, directory) for name in train.sets}, train.mix)
    return _find_length(spec, role, None, directory)


def count_turns(lengths: Mapping[str, int | None], mix: Mapping[str, float] | None) -> int | None:
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
                samples = len(read_digits(place))
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
