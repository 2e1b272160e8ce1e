"""A run reopened after its end: its spec, and its step restored from one of its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from compiler.timing.units import Pace
from graphspec.analysis.evaluation import find_eval_dataset, find_eval_mode, find_recomputed, find_role
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.api import build
from runtime.checkpoints import Store, read_checkpoint
from runtime.data import AnyFeed, open_feed, replace_source
from runtime.engine.imports import importable
from runtime.folder import CHECKPOINTS
from runtime.problems import problem
from runtime.train.allowed import recall, require_all_allowed
from runtime.train.checkpointing import find_best, find_state, was_evaluated
from runtime.train.evaluate import Evaluation, recompute
from runtime.train.run_folder import Record, name_spec, read_record

if TYPE_CHECKING:
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
    """The folder of the run's spec, where relative paths start."""
    allow: tuple[str, ...]
    """The packages that may be imported."""
    is_evaluated: bool
    """The run evaluated at the step of the checkpoint, so that statistics of averages are of these weights."""

    def open(self, spec: GraphSpec, role: str) -> AnyFeed:
        """Return a set of data that evaluations take batches of."""
        return open_feed(
            spec,
            role,
            seed=self.record.seed,
            allow=self.allow,
            directory=self.directory,
            dataset=None if role == "train" else find_eval_dataset(spec),  # training batches carry their own
        )

    def recompute_statistics(self) -> tuple[str, ...]:
        """Compute the statistics of averages anew where no evaluation of the run did; return the averages.

        Raises SpecError: what opening their data raises, with a note that says what it is for.
        """
        averages = find_recomputed(self.spec)
        if self.is_evaluated or not averages:
            return ()
        try:
            with importable(self.directory):
                opened = {average: self.open(self.spec, role) for average, role in averages.items()}
                recompute(self.step, opened, find_eval_mode(self.spec), find_eval_dataset(self.spec))
        except SpecError as error:
            needs = f"{', '.join(averages)} needs this data: the run did not evaluate at {self.path.name}"
            why = "and so computed no statistics of BatchNorm there"
            notes = (f"{needs}, {why}; `--checkpoint` names a step at which it did",)
            problems = [replace(each, notes=(*each.notes, *notes)) for each in error.diagnostics]
            raise SpecError(problems, error.texts) from None
        return tuple(averages)


def reopen_run(
    folder: Path,
    *,
    choice: str = "best",
    device: str = "auto",
    allow: Sequence[str] = (),
    find_roles: Callable[[GraphSpec], Sequence[str]] = lambda spec: (),
    recalls: bool = False,
    jit_compile: bool = False,
) -> Reopened:
    """Return a run restored from one of its checkpoints.

    ``choice`` is ``best`` (the newest where no best is kept), ``newest``, or the number of a step; ``find_roles``
    gives those whose data the caller opens. ``recalls``: allow again what the user of this machine allowed the run.
    Raises SpecError: GS240-GS243 the run or its checkpoint is missing or damaged, and what building raises.
    """
    from compiler import compile_step

    record = read_record(folder)
    spec = load(record.spec, name=name_spec(folder))
    store = Store(folder / CHECKPOINTS, 1)
    newest = store.newest()
    if newest is None:
        help = "run it to its end, or further with --resume"
        raise problem("GS240", f"the run in {str(folder)!r} has no checkpoint yet", help=help)
    best = find_best(read_checkpoint(newest)) if choice == "best" else None
    path = newest if choice in ("best", "newest") else store.path(int(choice))
    path = path if best is None else store.path(best)
    checkpoint = read_checkpoint(path)
    source = Path(os.path.normpath(folder / record.spec_path))
    allowed = (*(recall(folder, record.id, source.parent) if recalls else ()), *allow)
    with importable(source.parent):
        pace = Pace(**record.pace.model_dump())
        plan = compile_step(spec, backend=record.backend, order=record.order, pace=pace)
        require_all_allowed(spec, find_roles(spec), allowed, lambda: plan.program)
        step = build(plan, device=device, seed=record.seed, allow=allowed, jit_compile=jit_compile, weights=False)
    step.restore(find_state(checkpoint))
    return Reopened(
        record=record,
        spec=spec,
        path=path,
        step=step,
        directory=source.parent,
        allow=allowed,
        is_evaluated=was_evaluated(checkpoint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to evaluate: a run, on which data (None: the data that the run evaluates on), at which checkpoint."""

    folder: Path
    data: str | None
    choice: str
    device: str
    allow: tuple[str, ...]
    jit_compile: bool = False
    """Whether XLA compiles the step."""

    def find_roles(self, spec: GraphSpec) -> tuple[str, ...]:
        """Return the roles of the data that is opened: of averages, and unless it is a file, of the evaluation."""
        recomputed = tuple(find_recomputed(spec).values())
        if self.data is None:
            return (find_role(spec), *recomputed)
        return (self.data, *recomputed) if self.data in spec.data else recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The figures of a checkpoint on a data set, by output."""

    path: Path
    data: str
    figures: Mapping[str, float]


def evaluate_run(question: Question) -> Answer:
    """Return the figures of a run; they equal those that the run itself printed for this checkpoint and data.

    Raises SpecError: GS240-GS243 the run or the checkpoint, GS219 the spec has no such mode, GS220 no such data, and
    what opening the data or building the step raises.
    """
    run = reopen_run(
        question.folder,
        choice=question.choice,
        device=question.device,
        allow=question.allow,
        find_roles=question.find_roles,
        recalls=True,
        jit_compile=question.jit_compile,
    )
    spec, role = run.spec, find_role(run.spec)
    if question.data in spec.data:
        role = question.data
    elif question.data is not None:
        spec = replace_source(spec, role, Path(question.data).absolute())
    averages = find_recomputed(spec)
    with importable(run.directory):
        opened = {name: run.open(spec, name) for name in (role, *averages.values())}
        recomputed = {average: opened[name] for average, name in averages.items()}
        mode = find_eval_mode(spec)
        figures = Evaluation.of(spec, run.step, opened[role], mode, recomputed).run()
    if not figures:
        help = f"add `metric` ops, or name values that mode {mode} computes in `outputs`"
        raise problem("GS248", f"mode {mode} of the spec gives no figures", help=help)
    return Answer(path=run.path, data=question.data or role, figures=figures)
