"""Saving and resuming a run: the state of the step, the place in the data, and the progress of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from runtime.checkpoints.format import Checkpoint
from runtime.checkpoints.shards import write_shards
from runtime.checkpoints.store import Store
from runtime.data import AnyFeed
from runtime.problems import problem
from runtime.processes import Alone, Processes
from runtime.state import Plain, State, find_arrays, flatten, unflatten
from runtime.train.logs import read_latest
from runtime.train.loop import RunState

DATA = "data"


class Stateful(Protocol):
    """The part of a compiled step that saving needs."""

    def state(self, *, whole: bool = True) -> State:
        """Return everything that training changes; not ``whole``: what this process has of it."""
        ...

    def restore(self, state: State) -> None:
        """Restore a state; all or nothing."""
        ...

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return an output as an array of the host."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Writes checkpoints of a run into its store, and restores a run from one."""

    step: Stateful
    feed: AnyFeed
    store: Store
    origin: Mapping[str, Plain]
    """The origin of the numbers, the same in every checkpoint of the run."""
    processes: Processes = field(default_factory=Alone)
    """The processes that take the run together: the first alone reads, and writes what is not divided among them."""

    def save(self, run: RunState, *, planned: bool = True) -> None:
        """Write a checkpoint; older ones that are neither among the newest nor the best are removed.

        An unplanned one, written because of a signal or an error, is removed once the next one is written: a resumed
        run then has the checkpoints that it would have without the interruption.
        """
        if planned:
            before = (step for step in run.planned if step < run.made)
            run.planned = (*before, run.made)[-self.store.keep :]
        state = self.step.state(whole=False)  # of all processes
        if self.processes.rank and not state.parts:
            return
        place, arrays = flatten(self.feed.state(), DATA)
        sections: dict[str, Plain] = {
            "origin": {**self.origin, "step": run.made},
            "counters": dict(state.counters),
            DATA: place,
            "loop": run.to_plain(read_latest(run.latest, self.step.numpy)),
        }
        checkpoint = Checkpoint(arrays={**state.arrays, **arrays}, sections=sections)
        if state.parts:
            write_shards(self.store.path(run.made), checkpoint, state.parts, self.processes)
        else:
            self.store.save(checkpoint, run.made)
        self.prune(run)

    def prune(self, run: RunState) -> None:
        """Remove old checkpoints; the newest, which holds the present state of the run, always stays."""
        if self.processes.rank:
            return
        self.store.prune(None if run.best is None else run.best.step, run.planned)

    def restore(self, checkpoint: Checkpoint, run: RunState) -> None:
        """Restore step, data and loop from a checkpoint.

        Raises SpecError: GS241 the checkpoint lacks what a run needs, GS252 the data has no such place, GS264 weights
        that do not fit.
        """
        self.step.restore(find_state(checkpoint))
        self.feed.restore(unflatten(checkpoint.sections.get(DATA), checkpoint.arrays))
        loop = _section(checkpoint, "loop")
        try:
            run.restore(loop)
        except ValueError as error:
            raise problem("GS241", f"the checkpoint does not say how far its run was: {error}") from error
        if "planned" not in loop:  # written by an older version
            run.planned = self.store.steps()


def find_state(checkpoint: Checkpoint) -> State:
    """Return the state of the step in a checkpoint; raise SpecError (GS241) where it has none."""
    others = set(find_arrays(checkpoint.sections.get(DATA)))
    arrays = {name: array for name, array in checkpoint.arrays.items() if name not in others}
    match checkpoint.sections.get("origin"):
        case {"backend": str() as backend}:
            return State(arrays=arrays, counters=_section(checkpoint, "counters"), backend=backend)
        case _:
            return State(arrays=arrays, counters=_section(checkpoint, "counters"))


def find_best(checkpoint: Checkpoint) -> int | None:
    """Return the step of the best checkpoint so far, which runs that keep their best record; None for other runs."""
    match checkpoint.sections.get("loop"):
        case {"best": {"step": int() as step}}:
            return step
        case _:
            return None


def was_evaluated(checkpoint: Checkpoint) -> bool:
    """Return whether the run had evaluated at the step of a checkpoint when it was written."""
    match checkpoint.sections.get("loop"):
        case {"step": int() as step, "evaluated": int() as evaluated}:
            return step == evaluated
        case _:
            return False


def _section(checkpoint: Checkpoint, name: str) -> dict[str, Plain]:
    """Return a section of a checkpoint, which must be a mapping."""
    section = checkpoint.sections.get(name)
    if not isinstance(section, dict):
        raise problem("GS241", f"the checkpoint has no section {name!r}")
    return section
