"""Another file in the place of a declared data set, to evaluate on it."""

from __future__ import annotations

from pathlib import Path

from graphspec.data import FILES, DataSource
from graphspec.diagnostics import SpecError
from graphspec.graph import GraphSpec
from graphspec.suggestions import closest
from runtime.problems import problem


def replace_source(spec: GraphSpec, role: str, path: Path) -> GraphSpec:
    """Return a spec whose ``data.<role>`` is the file at ``path``, read as the declared set was: batch and columns.

    A spec without that role takes them from ``train``. ``path`` is absolute, or relative to where the spec's own paths
    start. Raises SpecError: GS220 the spec declares no data, GS221 it is no file that a source reads.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FILES:
        raise _unknown(spec, path)
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


def _unknown(spec: GraphSpec, path: Path) -> SpecError:
    near = closest(path.name, spec.data, 1)
    meant = f"; did you mean the set {near[0]!r}?" if near else ""
    names = ", ".join(spec.data) or "none"
    message = f"{path.name!r} is neither a set of the spec nor a file of the kinds {' and '.join(FILES)}{meant}"
    return problem("GS221", message, notes=(f"sets of the spec: {names}",), help="name a set, or a file `data.npz`")
