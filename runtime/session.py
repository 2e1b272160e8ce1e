"""One run of ``stepgraph run``: from a plan to a trained step and the files that tell about it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from graphspec.diagnostics import SpecError
from runtime import api
from runtime.checkpoint import Origin, save_checkpoint
from runtime.curves import draw_curves
from runtime.data import Batches, endless, open_data
from runtime.folder import CHECKPOINT, cannot_write, make_folder
from runtime.gallery import Gallery, find_image_mode, find_interval
from runtime.imports import importable
from runtime.logs import open_logs
from runtime.loop import DEFAULT_STEPS, Loop, Outcome
from runtime.progress import Bar, Display, Plain, working
from runtime.summary import introduce, sum_up

if TYPE_CHECKING:
    from compiler import Plan
    from runtime.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for; None means what the spec says, or the default."""

    path: Path
    plan: Plan
    device: str
    seed: int | None
    steps: int | None
    out: Path | None
    allow: Sequence[str]
    stream: TextIO
    moving: bool
    """Whether the stream is a terminal on which a bar can move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run that is ready to begin."""

    request: Request
    seed: int
    steps: int
    step: Step
    batches: Batches
    folder: Path

    def train(self) -> Outcome:
        """Train, and write logs, pictures, curves and the checkpoint, also when the user stopped the run."""
        gallery = self._open_gallery()
        spec = self.request.plan.spec
        loop = Loop(
            step=self.step,
            batches=endless(self.batches),
            steps=self.steps,
            log_every=spec.run.log_every,
            display=self._open_display(),
            sinks=open_logs(self.folder, spec.run.log),
            gallery=gallery,
        )
        outcome = loop.run()
        arrays = {name: self.step.numpy(tensor) for name, tensor in self.step.tensors().items()}
        save_checkpoint(self.folder / CHECKPOINT, arrays, self._find_origin(outcome.steps))
        draw_curves(outcome.rows, self.folder / "curves.png", title=spec.name)
        if gallery is not None:
            gallery.finish()
        return outcome

    def _open_gallery(self) -> Gallery | None:
        plan = self.step.plan
        if plan.spec.run.images is None:
            return None
        return Gallery(
            step=self.step,
            spec=plan.spec,
            mode=find_image_mode(plan.spec, plan.program),
            folder=self.folder,
            every=find_interval(plan.spec, self.steps),
        )

    def _open_display(self) -> Display:
        return (Bar if self.request.moving else Plain)(self.request.stream, self.steps)

    def _find_origin(self, step: int) -> Origin:
        plan = self.request.plan
        return Origin(
            name=plan.spec.name,
            text="".join(plan.spec.texts().values()),
            step=step,
            seed=self.seed,
            backend=plan.program.backend,
            device=self.step.device,
        )


def perform(request: Request) -> Outcome:
    """Run a spec from its data to its files.

    Raises SpecError for whatever is wrong in spec, data or run; a folder that nothing was written to is removed.
    """
    with importable(request.path.parent):
        session = _prepare(request)
        introduce(session, request.stream)
        with _tidied(session.folder):
            outcome = session.train()
    sum_up(outcome, session.folder, request.stream)
    return outcome


def _prepare(request: Request) -> Session:
    """Open the data before the framework is imported: what can be wrong there is told at once."""
    spec = request.plan.spec
    seed = spec.seed if request.seed is None else request.seed
    if spec.run.images is not None:
        find_image_mode(spec, request.plan.program)
    batches = open_data(spec, "train", seed=seed, allow=request.allow, directory=request.path.parent)
    with working(request.stream, f"building {spec.name}", moving=request.moving):
        step = api.build(request.plan, device=request.device, seed=seed, allow=request.allow)
    steps = request.steps or spec.run.steps or DEFAULT_STEPS
    folder = make_folder(spec.name, request.out)
    return Session(request=request, seed=seed, steps=steps, step=step, batches=batches, folder=folder)


@contextmanager
def _tidied(folder: Path) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(Path(error.filename or folder), error) from error
    except SpecError:
        with suppress(OSError):
            folder.rmdir()  # only an empty one goes
        raise
