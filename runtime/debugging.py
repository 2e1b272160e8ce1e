"""Debugging of a run: a step whose numbers are not finite is undone and kept in a folder, to be replayed."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from graphspec.diagnostics import SpecError
from runtime.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from runtime.checkpoints.disk import write_file
from runtime.problems import problem, system_reason
from runtime.state import Plain, PlainModel, State
from runtime.step import BROKEN, StepError
from runtime.train.checkpointing import find_state

if TYPE_CHECKING:
    from runtime.step import Step

BATCH = "batch.npz"
REPORT = "report.txt"
SECTION = "replay"
"""The section of the checkpoint that describes the step that was kept."""
FOUND = frozenset({"GS261", "GS262"})
"""Codes of the checks of a debug build."""

Arrays = Mapping[str, npt.NDArray[np.generic]]
Section = TypeVar("Section", bound=PlainModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Everything that replaying a step needs: the state before it, its batch and mode, the seed, and the report."""

    state: State
    batch: Arrays
    mode: str
    seed: int
    report: str
    dataset: str | None = None
    """The data set of the batch, where the step was given one."""


class Origin(PlainModel):
    """The seed and the framework of the numbers of a checkpoint."""

    seed: int
    backend: str


class Replay(PlainModel):
    """The mode of the step that was kept, the checksum of its batch, and the data set where it was given one."""

    mode: str
    sha256: str
    dataset: str | None = None


@final
class Watched:
    """A step built with ``debug``, as a run uses it: a step that fails is undone, and can be replayed.

    The state is copied to the host before every step; ``folder`` is the run's, ``command`` the command line that
    replays a step, up to the name of its folder, ``seed`` the seed that the step was built from.
    """

    def __init__(self, step: Step, folder: Path, *, command: str = "", seed: int | None = None) -> None:
        self.step = step
        self.folder = folder
        self.command = command
        self.seed = step.spec.seed if seed is None else seed

    def __call__(
        self, batch: Mapping[str, object], mode: str = "train", dataset: str | None = None
    ) -> dict[str, object]:
        """Take one step; where it fails, undo its changes.

        Raises StepError as the step does; with GS261 and GS262, everything to replay the step is kept in a folder,
        which the error names.
        """
        state = self.step.state()
        try:
            return self.step(batch, mode, dataset)
        except StepError as error:
            found = (
                replace(each, notes=tuple(note for note in each.notes if note != BROKEN)) for each in error.diagnostics
            )
            failed = StepError(found, error.texts)  # undoes its writes
        self.step.restore(state)
        if FOUND.isdisjoint(each.code for each in failed.diagnostics):
            raise failed
        raise self._keep(failed, state, batch, mode, dataset)

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return a copy of an output on the host."""
        return self.step.numpy(value)

    def reset(self, mode: str = "eval") -> None:
        """Start a mode anew."""
        self.step.reset(mode)

    def recompute_buffers(
        self,
        average: str,
        batches: Iterable[Mapping[str, object]],
        *,
        mode: str = "eval",
        dataset: str | None = None,
    ) -> None:
        """Compute BatchNorm's statistics of an average anew."""
        self.step.recompute_buffers(average, batches, mode=mode, dataset=dataset)

    def end_epoch(self, mode: str = "train") -> None:
        """Record that a pass over the data has ended."""
        self.step.end_epoch(mode)

    def _keep(
        self, error: StepError, state: State, batch: Mapping[str, object], mode: str, dataset: str | None
    ) -> StepError:
        """Write the folder of a failed step; return the error with its place."""
        number = _count(state, mode) + 1
        place = self.folder / (f"nan-step-{number}" if mode == "train" else f"nan-{mode}-step-{number}")
        try:
            arrays: dict[str, npt.NDArray[np.generic]] = {}
            for name in (entry.name for entry in self.step.plan.program.inputs if entry.name in batch):
                value = batch[name]
                arrays[name] = value if isinstance(value, np.ndarray) else self.step.numpy(value)
            kept = Kept(state=state, batch=arrays, mode=mode, seed=self.seed, report=str(error), dataset=dataset)
            keep_step(place, self.step, kept)
            note = f"state and batch are kept in {str(place)!r}"
        except (SpecError, OSError) as refusal:
            note = f"state and batch could not be kept in {str(place)!r}: {str(refusal).splitlines()[0]}"
        else:
            note = f"{note}; `{self.command} {place}` reruns this step" if self.command else note
        return StepError([replace(each, notes=(*each.notes, note)) for each in error.diagnostics], error.texts)


def keep_step(folder: Path, step: Step, kept: Kept) -> None:
    """Write a checkpoint of the state before a step, with the batch and what was reported.

    Raises SpecError: GS234 and OSError where the folder cannot be written.
    """
    content = pack(kept.batch)
    origin: dict[str, Plain] = {
        "name": step.spec.name,
        "step": _count(kept.state, "train"),
        "seed": kept.seed,
        "backend": step.plan.program.backend,
        "device": step.device,
    }
    replay = Replay(mode=kept.mode, sha256=hashlib.sha256(content).hexdigest(), dataset=kept.dataset)
    sections: dict[str, Plain] = {"origin": origin, "counters": dict(kept.state.counters)}
    sections[SECTION] = replay.model_dump(exclude_none=True)
    write_checkpoint(folder, Checkpoint(arrays=kept.state.arrays, sections=sections))
    write_file(folder / BATCH, content)
    write_file(folder / REPORT, f"{kept.report}\n".encode())


def find_seed(folder: Path) -> int:
    """Return the seed that a step must be built from to draw the same numbers as when it was kept.

    Raises SpecError: GS240, GS241, GS242 no checkpoint that can be read, GS263 no step was kept in it.
    """
    return _read(folder, read_checkpoint(folder), "origin", Origin).seed


def find_framework(folder: Path) -> str:
    """Return the framework under which a step was kept; raises as :func:`find_seed`."""
    return _read(folder, read_checkpoint(folder), "origin", Origin).backend


def replay(folder: Path, step: Step) -> dict[str, object]:
    """Replay the step that was kept in a folder, and return its outputs; built with ``debug``, it fails again.

    The step must be built from the same spec and seed (:func:`find_seed`). Raises SpecError: GS240, GS241, GS242 no
    checkpoint that can be read, GS263 no step was kept in it, GS264 it is of another spec; StepError as the step does.
    """
    checkpoint = read_checkpoint(folder)
    kept = _read(folder, checkpoint, SECTION, Replay)
    path = folder / BATCH
    help = "take the folder from where it was written once more, with all its files, or run with `--debug nan` again"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise problem("GS263", f"cannot read the batch {str(path)!r}: {system_reason(error)}", help=help) from error
    if hashlib.sha256(content).hexdigest() != kept.sha256:
        raise problem("GS263", f"the batch {str(path)!r} differs from what was written", help=help)
    batch = unpack(content)
    step.restore(find_state(checkpoint))
    return step(batch, kept.mode, kept.dataset)


def _read(folder: Path, checkpoint: Checkpoint, section: str, model: type[Section]) -> Section:
    """Return a section of the checkpoint of a step that was kept."""
    try:
        return model.read(checkpoint.sections.get(section))
    except ValueError as error:
        help = "name a folder `nan-step-<n>` that `run --debug nan` wrote; a checkpoint alone has no batch"
        message = f"{str(folder)!r} is a checkpoint, but no step was kept in it"
        raise problem("GS263", message, help=help) from error


def pack(batch: Arrays) -> bytes:
    """Return arrays as the content of an npz file, under any names."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in batch.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return stream.getvalue()


def unpack(content: bytes) -> Arrays:
    """Return the arrays in the content of an npz file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _count(state: State, mode: str) -> int:
    """Return how many steps of a mode were taken before a state."""
    steps = state.counters.get("steps")
    count = steps.get(mode, 0) if isinstance(steps, dict) else 0
    return count if isinstance(count, int) else 0
