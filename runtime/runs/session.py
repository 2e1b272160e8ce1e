"""One run of ``stepgraph run``: from a spec to a trained step and the files that tell about it."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from graphspec.evaluation import find_goal
from graphspec.graph import GraphSpec
from graphspec.run import BestSpec, StopSpec
from runtime.checkpoints import Store
from runtime.checkpoints.disk import remove_hidden
from runtime.data import AnyFeed
from runtime.data.arrays import Batch
from runtime.folder import CHECKPOINTS, LOCK, cannot_write
from runtime.runs.agenda import Agenda
from runtime.runs.curves import draw_curves
from runtime.runs.evaluation import Evaluation
from runtime.runs.gallery import Gallery, find_image_mode
from runtime.runs.keeping import Keeper
from runtime.runs.lock import Lock
from runtime.runs.logs import open_logs, read_rows
from runtime.runs.loop import Loop, Outcome
from runtime.runs.past import Past, find_checkpoint
from runtime.runs.progress import Bar, Display, Plain
from runtime.runs.record import Record, write_record
from runtime.runs.run_state import RunState
from runtime.runs.standing import Standing
from runtime.runs.summary import resumed

if TYPE_CHECKING:
    from runtime.debugging import Watched
    from runtime.step import Step

    Driven: TypeAlias = Step | Watched

KEPT = 3
"""Checkpoints that are kept where the spec does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for; None means what the spec says, or the default."""

    path: Path
    spec: GraphSpec
    overrides: Sequence[str]
    backend: str | None
    """The framework; where nobody asks for one, that of the run that goes on, or PyTorch."""
    order: str
    device: str
    seed: int | None
    steps: int | None
    out: Path | None
    allow: Sequence[str]
    resume: bool
    debug: Literal["nan"] | None
    jit_compile: bool
    """Whether XLA compiles the step."""
    stream: TextIO
    moving: bool
    """Whether the stream is a terminal on which a bar can move."""

    @property
    def replaying(self) -> str:
        """Return the command line that takes a kept step again, up to the name of its folder."""
        device = () if self.device == "auto" else (self.device,)
        backend = () if self.backend is None else (self.backend,)
        options = {"-s": self.overrides, "--backend": backend, "--device": device, "--allow": self.allow}
        given = [word for name, values in options.items() for value in values for word in (name, value)]
        return shlex.join(["stepgraph", "run", str(self.path), *given, "--replay"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run that is ready to begin, or to go on where its newest checkpoint stands."""

    request: Request
    record: Record
    past: Past | None
    agenda: Agenda
    step: Step
    feed: AnyFeed
    judged: AnyFeed | None
    """What the run evaluates on."""
    folder: Path

    @property
    def spec(self) -> GraphSpec:
        """Return the spec of the run."""
        return self.request.spec

    def train(self) -> Outcome:
        """Train, and write logs, pictures, curves and checkpoints, also when the user stopped the run."""
        with Lock(self.folder), _unused(self.folder), _blamed(self.folder):
            remove_hidden(self.folder)
            loop = self._make_loop()
            outcome = loop.run()
            draw_curves(outcome.rows, self.folder / "curves.png", title=self.spec.name)
        return outcome

    def _make_loop(self) -> Loop:
        keeper = self._make_keeper()
        state = self._restore(keeper)
        self._write_record(state.made)  # before any log: a folder with logs alone is no run that could go on
        driven = self._watch()
        rows = read_rows(self.folder, state.made, state.rows) if state.made else ()
        state.rows = len(rows)
        return Loop(
            step=driven,
            feed=self.feed,
            agenda=self.agenda,
            display=self._open_display(),
            state=state,
            sinks=open_logs(self.folder, self.spec.run.log, rows, state.made),
            gallery=self._open_gallery(driven, state.made),
            evaluation=self._make_evaluation(driven),
            saver=keeper,
            patience=None if self.spec.run.stop is None else self.spec.run.stop.patience,
            rows=list(rows),
        )

    def _write_record(self, made: int) -> None:
        """Write what the run is made with; where that changes on the way, what it was until then is kept beside it."""
        if self.past is not None and self.past.record == self.record:
            return
        until = f"run-until-{made}.json"
        changed = self.past is not None and made and not self.past.record.computes_as(self.record)
        if self.past is not None and changed and not (self.folder / until).exists():
            write_record(self.folder, self.past.record, until)
        write_record(self.folder, self.record)

    def _make_keeper(self) -> Keeper:
        checkpoint = self.spec.run.checkpoint
        return Keeper(
            step=self.step,
            feed=self.feed,
            store=Store(self.folder / CHECKPOINTS, KEPT if checkpoint is None else checkpoint.keep),
            origin={
                "name": self.spec.name,
                "seed": self.record.seed,
                "backend": self.record.backend,
                "device": self.step.device,
                "plan": self.record.plan,
            },
        )

    def _restore(self, keeper: Keeper) -> RunState:
        """Return the state of the run: that of its newest checkpoint where it goes on, else that of a beginning."""
        run = self.spec.run
        state = RunState(best=_standing(self.spec, run.best), stop=_standing(self.spec, run.stop))
        checkpoint = find_checkpoint(keeper.store) if self.past is not None else None
        if checkpoint is not None:
            keeper.restore(checkpoint, state)
            keeper.prune(state)  # a kill may have come between a checkpoint and that
            resumed(state.made, self.feed.notes, self.request.stream)
        return state

    def _watch(self) -> Driven:
        """Return the step as the run drives it: watched, where the run is debugged."""
        if self.request.debug is None:
            return self.step
        from runtime.debugging import Watched

        return Watched(self.step, self.folder, command=self.request.replaying, seed=self.record.seed)

    def _make_evaluation(self, step: Driven) -> Evaluation | None:
        run = self.spec.run
        if run.eval is None or self.judged is None:
            return None
        return Evaluation.of(self.spec, step, self.judged, run.eval.mode)

    def _open_gallery(self, step: Driven, made: int) -> Gallery | None:
        if self.spec.run.images is None:
            return None
        return Gallery(
            step=step,
            spec=self.spec,
            mode=find_image_mode(self.spec, self.step.plan.program),
            folder=self.folder,
            every=self.agenda.show.steps,
            batch=self._find_first_batch(),
            seen=made > 0,
        )

    def _find_first_batch(self) -> Batch | None:
        """Return the batch that pictures of a run that goes on are made from: the run's first, where it can be had."""
        if self.past is None or self.feed.length is None:
            return None
        return self.feed.first()

    def _open_display(self) -> Display:
        return (Bar if self.request.moving else Plain)(self.request.stream, self.agenda.steps)


def _standing(spec: GraphSpec, watched: BestSpec | StopSpec | None) -> Standing | None:
    """Return the standing of a figure before anything was measured."""
    if watched is None:
        return None
    goal = find_goal(spec, watched) or "min"
    delta = watched.min_delta if isinstance(watched, StopSpec) else 0.0
    return Standing(metric=watched.metric, mode=goal, min_delta=delta)


@contextmanager
def _unused(folder: Path) -> Generator[None]:
    """Leave a folder empty, while its lock is still held, where the run ends before it has written anything."""
    try:
        yield
    except BaseException:
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink(missing_ok=True)
        raise


@contextmanager
def _blamed(folder: Path) -> Generator[None]:
    """Tell which file could not be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(Path(error.filename or folder), error) from error
