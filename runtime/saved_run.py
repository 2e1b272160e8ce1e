"""A run reopened: its step, restored from one of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.step import Step


def reopen(folder: Path | str, *, checkpoint: str = "best", device: str = "auto", allow: Sequence[str] = ()) -> Step:
    """Return the step of a run, restored from a checkpoint: ``best``, ``newest``, or the number of a step.

    Raises SpecError: GS240-GS243 the run or its checkpoint is missing or damaged, and what :func:`build` raises.
    """
    from runtime.train.reopen import reopen_run  # imports numpy

    return reopen_run(Path(folder), choice=checkpoint, device=device, allow=allow).step
