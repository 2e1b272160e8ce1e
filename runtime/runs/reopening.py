"""A run opened again after its end: its spec, and its step as one of its checkpoints left it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphspec.graph import GraphSpec
from graphspec.load import load
from runtime.api import build
from runtime.checkpoints import Store, read_checkpoint
from runtime.folder import CHECKPOINTS
from runtime.imports import importable
from runtime.problems import problem
from runtime.runs.keeping import find_best, find_state
from runtime.runs.record import Record, name_spec, read_record

if TYPE_CHECKING:
    from compiler import Plan
    from runtime.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A run that has ended: its record, its spec, the checkpoint that was chosen, and the step restored from it."""

    record: Record
    spec: GraphSpec
    path: Path
    """The folder of the checkpoint."""
    step: Step
    directory: Path
    """Where the run's spec lies, which relative paths start from."""


def reopen(
    folder: Path,
    *,
    choice: str = "best",
    device: str = "auto",
    allow: Sequence[str] = (),
    jit_compile: bool = False,
) -> Reopened:
    """Return a run as one of its checkpoints left it.

    ``choice`` is ``best`` (the newest where no best is kept), ``newest``, or the number of a step.
    Raises SpecError: GS240-GS243 the run or its checkpoint is missing or damaged, and what building raises.
    """
    record = read_record(folder)
    spec = load(record.spec, name=name_spec(folder))
    path = _choose(Store(folder / CHECKPOINTS, 1), folder, choice)
    checkpoint = read_checkpoint(path)
    source = Path(os.path.normpath(folder / record.spec_path))
    with importable(source.parent):
        plan = _compile(spec, record)
        step = build(plan, device=device, seed=record.seed, allow=allow, jit_compile=jit_compile, weights=False)
    step.restore(find_state(checkpoint))
    return Reopened(record=record, spec=spec, path=path, step=step, directory=source.parent)


def _choose(store: Store, folder: Path, choice: str) -> Path:
    """Return the folder of the chosen checkpoint."""
    newest = store.newest()
    if newest is None:
        help = "run it to its end, or further with --resume"
        raise problem("GS240", f"the run in {str(folder)!r} has no checkpoint yet", help=help)
    if choice == "newest":
        return newest
    if choice == "best":
        best = find_best(read_checkpoint(newest))
        return newest if best is None else store.path(best)
    return store.path(int(choice))


def _compile(spec: GraphSpec, record: Record) -> Plan:
    from compiler import compile_step

    return compile_step(spec, backend=record.backend, order=record.order, pace=record.pace)
