"""Where batches come from: the sources that a spec's ``data:`` names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphspec.data import DataSource
from graphspec.graph import GraphSpec
from runtime.data.batches import Batches, Sampled, endless
from runtime.data.custom import open_custom
from runtime.data.digits import read_digits
from runtime.data.npz import read_npz
from runtime.data.place import Place
from runtime.problems import problem

__all__ = ["Batches", "endless", "open_data"]

_OPTIONS = {"split": ("digits",), "path": ("npz",), "args": ("digits", "class")}
"""Options that not every source has -> the sources that have them."""


def open_data(
    spec: GraphSpec, role: str, *, seed: int, allow: Sequence[str] = (), directory: Path | None = None
) -> Batches:
    """Return the batches of ``data.<role>``; only the arrays that the spec's inputs name are in them.

    ``seed`` orders the samples where the source has no seed of its own; ``directory`` is where relative paths start
    and where a user's own source may be imported from, if ``allow`` names it.
    Raises SpecError: GS201-GS205, GS220-GS229.
    """
    if role not in spec.data:
        raise _not_declared(spec, role)
    place = Place(spec=spec, role=role)
    declared = spec.data[role]
    _refuse_foreign_options(place, declared)
    order = seed if declared.seed is None else declared.seed
    if declared.class_path is not None:
        return open_custom(place, seed=order, allow=allow, directory=directory)
    samples = read_digits(place) if declared.source == "digits" else read_npz(place, directory or Path())
    return Sampled.of(samples, place, order)


def _refuse_foreign_options(place: Place, declared: DataSource) -> None:
    """Refuse what is written for a source that does not read it."""
    kind = declared.source if declared.class_path is None else "class"
    for name, kinds in _OPTIONS.items():
        if name in declared.model_fields_set and kind not in kinds:
            owners = " and ".join(f"`{owner}`" for owner in kinds)
            raise place.problem("GS229", f"`{name}` means nothing to a source `{kind}`; it belongs to {owners}", name)


def _not_declared(spec: GraphSpec, role: str) -> Exception:
    message = f"the spec {spec.name!r} does not say where its batches come from: it has no `data.{role}`"
    help = f"add, for example: data: {{{role}: {{source: digits, batch: 64, shuffle: true}}}}"
    return problem("GS220", message, span=spec.span("data", key=True), help=help, texts=spec.texts())
