"""Going on with a run: which one, what has changed since, and from which checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphspec.graph import GraphSpec
from graphspec.load import load
from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from runtime.folder import RECORD, find_numbers, name_folder
from runtime.problems import problem
from runtime.runs.changes import Change, compare_specs, refuse_changes
from runtime.runs.crossing import compare_backends
from runtime.runs.record import Record, name_spec, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run that is to go on: its folder, what it was made with, and what the spec says differently now."""

    folder: Path
    record: Record
    changes: tuple[Change, ...]


def find_past(spec: GraphSpec, wanted: Path | None, backend: str | None = None) -> Past:
    """Return the run in a folder, or without one the newest run of the spec's name under ``runs``.

    ``backend`` is the framework that it shall go on under, None its own. Raises SpecError: GS243 its record is missing
    or damaged, GS245 the spec has another structure now, GS246 no run.
    """
    folder = find_newest(spec.name) if wanted is None else wanted
    if folder is None or not folder.is_dir():
        raise _no_run(spec, wanted)
    record = read_record(folder)
    changes = compare_specs(load(record.spec, name=name_spec(folder)), spec)
    if any(change.kind == "structure" for change in changes):
        raise refuse_changes(folder, changes)
    return Past(folder=folder, record=record, changes=(*compare_backends(record.backend, backend, spec), *changes))


def find_newest(name: str) -> Path | None:
    """Return the last of ``runs/<name>``, ``runs/<name>-2``, ... that holds a run of that name; None where none does.

    Raises SpecError: GS243 the record of one is damaged, so that its name is not known.
    """
    folders = (name_folder(name, number) for number in reversed(find_numbers(name)))
    runs = (folder for folder in folders if (folder / RECORD).exists())
    return next((folder for folder in runs if read_record(folder).name == name), None)


def find_checkpoint(store: Store) -> Checkpoint | None:
    """Return the newest checkpoint, after removing what a kill left behind; None where the run had none yet."""
    store.clean()
    newest = store.newest()
    return None if newest is None else read_checkpoint(newest)


def _no_run(spec: GraphSpec, wanted: Path | None) -> Exception:
    where = f"no run of {spec.name!r} under 'runs'" if wanted is None else f"no run in {str(wanted)!r}"
    help = "leave --resume out to begin one, or name its folder with --out"
    return problem("GS246", f"there is {where} to go on with", help=help)
