"""A run reopened: its step, restored from one of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.step import Step


def reopen(folder: Path | str, *, checkpoint: str = "best", device: str = "auto", allow: Sequence[str] = ()) -> Step:
    """Return the step of a run, restored from a checkpoint: ``best``, ``newest``, or the number of a step.

    ``device`` and ``allow`` are those of :func:`build`.

    Raises SpecError: GS240 to GS243 for a run or checkpoint that is missing or damaged, and what :func:`build` raises.

    >>> from tempfile import mkdtemp
    >>> from runtime import reopen
    >>> from runtime.cli import execute
    >>> folder = f"{mkdtemp()}/run"
    >>> spec = "examples/simultaneous-gan/simultaneous-gan.yaml"
    >>> execute(["run", spec, "--steps", "2", "--out", folder])  # doctest: +ELLIPSIS
    simultaneous-gan: torch on ...
    0
    >>> reopen(folder, device="cpu").state().counters["steps"]["train"]
    2
    """
    from runtime.train.reopen import reopen_run  # imports numpy

    return reopen_run(Path(folder), choice=checkpoint, device=device, allow=allow).step
