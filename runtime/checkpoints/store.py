"""The checkpoints of a run: found by their steps; the newest and the best are kept."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoints.disk import hidden_sibling, sync_folder
from runtime.checkpoints.format import Checkpoint, find_hidden, find_steps, name_step, write_checkpoint
from runtime.folder import cannot_write


@dataclass(frozen=True, slots=True)
class Store:
    """The checkpoints in a folder, of which a prune keeps `keep` and the best one."""

    folder: Path
    keep: int

    def __post_init__(self) -> None:
        """Refuse to keep none: a run resumes from the newest."""
        if self.keep < 1:
            raise ValueError(f"a store keeps at least 1 checkpoint, not {self.keep}")

    def save(self, checkpoint: Checkpoint, step: int) -> Path:
        """Write the checkpoint of a step and return its folder; raise SpecError (GS234) where it cannot be written."""
        path = self.path(step)
        write_checkpoint(path, checkpoint)
        return path

    def path(self, step: int) -> Path:
        """Return the folder of a step's checkpoint, which may not exist."""
        return self.folder / name_step(step)

    def steps(self) -> tuple[int, ...]:
        """Return the steps of the existing checkpoints, in order."""
        return find_steps(self.folder)

    def newest(self) -> Path | None:
        """Return the folder of the last checkpoint, or None."""
        steps = self.steps()
        return self.path(steps[-1]) if steps else None

    def prune(self, best: int | None = None, counted: Collection[int] | None = None) -> None:
        """Remove all checkpoints but `keep` of them and the one of the step `best`.

        The newest always stays; of those before it only the steps in `counted` may stay, any where it is None. Raises
        SpecError: GS234 where one cannot be removed.
        """
        steps = self.steps()
        before = [step for step in steps[:-1] if counted is None or step in counted]
        kept = {*before[max(0, len(before) - self.keep + 1) :], *steps[-1:], best}
        for path in (self.path(step) for step in steps if step not in kept):
            hidden = hidden_sibling(path, "gone")
            try:
                path.rename(hidden)  # first, so that what a kill leaves is not a checkpoint
                shutil.rmtree(hidden)
            except OSError as error:
                raise cannot_write(path, error) from error

    def clean(self) -> None:
        """Remove checkpoints that a killed process left half written or half removed, and nothing else.

        A checkpoint that was being replaced is restored where its replacement was never completed. No other
        process may be writing checkpoints here (see :class:`runtime.train.run_folder.Lock`). Raises SpecError: GS234.
        """
        if not self.folder.is_dir():
            return
        try:
            for left, place in find_hidden(self.folder, "old").items():
                if place.exists():
                    shutil.rmtree(left)
                else:
                    left.rename(place)
            for purpose in ("new", "gone"):
                for left in find_hidden(self.folder, purpose):
                    shutil.rmtree(left)
            sync_folder(self.folder)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
