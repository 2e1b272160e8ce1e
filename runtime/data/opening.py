"""Opening a data set: which source gives the samples of a role."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphspec.data import FILES, DataSource
from graphspec.graph import GraphSpec
from runtime.data.batches import Batches, Sampled
from runtime.data.custom import open_custom
from runtime.data.digits import read_digits
from runtime.data.npz import read_npz
from runtime.data.place import Place
from runtime.data.stored import Stored
from runtime.data.table import read_table
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
    """Return the batches of ``data.<role>``; only the arrays that the spec's inputs name are in them.

    ``seed`` orders the samples where the source has no seed of its own; ``directory`` is where relative paths start
    and where a user's own source may be imported from, if ``allow`` names it; ``dataset`` is which of several training
    sets is meant, and of another role of which data set its batches are.
    Raises SpecError: GS201-GS205, GS220-GS229.
    """
    if role not in spec.data:
        raise _not_declared(spec, role)
    place = Place(spec=spec, role=role, dataset=dataset)
    declared = place.declared
    _refuse_foreign_options(place, declared)
    order = seed if declared.seed is None else declared.seed
    if declared.class_path is not None:
        return open_custom(place, seed=order, allow=allow, directory=directory)
    return Sampled.of(_read(place, directory or Path()), place, order)


def _read(place: Place, directory: Path) -> Stored:
    """Return the samples of a built-in source."""
    match place.source:
        case "digits":
            return read_digits(place)
        case "npz":
            return read_npz(place, directory)
        case _:
            return read_table(place, directory)


def _refuse_foreign_options(place: Place, declared: DataSource) -> None:
    """Refuse what is written for a source that does not read it."""
    kind = declared.source if declared.class_path is None else "class"
    for name, kinds in _OPTIONS.items():
        if name in declared.model_fields_set and kind not in kinds:
            owners = " and ".join(f"`{owner}`" for owner in kinds)
            raise place.problem("GS229", f"`{name}` means nothing to a source `{kind}`; it belongs to {owners}", name)
    for name, column in declared.columns.items():
        if kind not in FILES and not isinstance(column, str):
            message = f"a source `{kind}` gives each input as one array, found a list of {len(column)} columns"
            raise place.problem("GS229", message, "columns", name, help="name one array")


def _not_declared(spec: GraphSpec, role: str) -> Exception:
    message = f"the spec {spec.name!r} does not say where its batches come from: it has no `data.{role}`"
    help = f"add, for example: data: {{{role}: {{source: digits, batch: 64, shuffle: true}}}}"
    return problem("GS220", message, span=spec.span("data", key=True), help=help, texts=spec.texts())
