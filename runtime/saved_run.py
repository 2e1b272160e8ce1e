"""A run opened again: its step, as one of its checkpoints left it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.step import Step


def reopen(folder: Path | str, *, checkpoint: str = "best", device: str = "auto", allow: Sequence[str] = ()) -> Step:
    """Return the step of a run as a checkpoint left it: ``best``, ``newest``, or the number of a step.

    Raises SpecError: GS240-GS243 the run or its checkpoint is missing or damaged, and what :func:`build` raises.
    """
    from runtime.train.reopen import reopen_run  # numpy comes with it

    return reopen_run(Path(folder), choice=checkpoint, device=device, allow=allow).step
