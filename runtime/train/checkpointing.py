"""Saving a run and going on with it: the state of the step, the place in the data, and how far the loop is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from runtime.checkpoints.format import Checkpoint
from runtime.checkpoints.store import Store
from runtime.problems import problem
from runtime.state import Plain, State, Tree, find_arrays, flatten, unflatten
from runtime.train.logs import read_latest
from runtime.train.loop import RunState

DATA = "data"


class Stateful(Protocol):
    """What saving needs of a compiled step."""

    def state(self) -> State:
        """Return everything that training changes."""
        ...

    def restore(self, state: State) -> None:
        """Put a state back; all or nothing."""
        ...

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return an output as an array of the host."""
        ...


class Positioned(Protocol):
    """What saving needs of the data."""

    def state(self) -> Tree:
        """Return the place in the data."""
        ...

    def restore(self, tree: Tree) -> None:
        """Go to a place in the data."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Writes checkpoints of a run into its store, and brings a run back to where one stands."""

    step: Stateful
    feed: Positioned
    store: Store
    origin: Mapping[str, Plain]
    """Where the numbers come from, the same in every checkpoint of the run."""

    def save(self, run: RunState, *, planned: bool = True) -> None:
        """Write a checkpoint; older ones that are neither among the newest nor the best are removed.

        One that is not planned, because it saves what a signal or an error cut short, goes when the next one is there:
        the run that goes on has the checkpoints then that it would have without the interruption.
        """
        if planned:
            before = (step for step in run.planned if step < run.made)
            run.planned = (*before, run.made)[-self.store.keep :]
        state = self.step.state()
        place, arrays = flatten(self.feed.state(), DATA)
        sections: dict[str, Plain] = {
            "origin": {**self.origin, "step": run.made},
            "counters": dict(state.counters),
            DATA: place,
            "loop": run.to_plain(read_latest(run.latest, self.step.numpy)),
        }
        self.store.save(Checkpoint(arrays={**state.arrays, **arrays}, sections=sections), run.made)
        self.prune(run)

    def prune(self, run: RunState) -> None:
        """Remove the checkpoints that are not kept beside the newest, which is that of the run as it is."""
        self.store.prune(None if run.best is None else run.best.step, run.planned)

    def restore(self, checkpoint: Checkpoint, run: RunState) -> None:
        """Bring step, data and loop to where a checkpoint stands.

        Raises SpecError: GS241 a checkpoint without what a run needs, GS252 a place that the data does not have, GS264
        weights that do not fit.
        """
        self.step.restore(find_state(checkpoint))
        self.feed.restore(unflatten(checkpoint.sections.get(DATA), checkpoint.arrays))
        loop = _section(checkpoint, "loop")
        try:
            run.restore(loop)
        except (KeyError, TypeError, ValueError) as error:
            raise problem("GS241", "the checkpoint does not say how far its run was") from error
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
    """Return the step of the best checkpoint so far, as a run that keeps its best noted it; None for any other."""
    match checkpoint.sections.get("loop"):
        case {"best": {"step": int() as step}}:
            return step
        case _:
            return None


def _section(checkpoint: Checkpoint, name: str) -> dict[str, Plain]:
    """Return a section of a checkpoint that is a mapping."""
    section = checkpoint.sections.get(name)
    if not isinstance(section, dict):
        raise problem("GS241", f"the checkpoint has no section {name!r}")
    return section
