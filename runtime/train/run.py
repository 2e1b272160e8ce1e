"""One run of ``stepgraph run``: from a spec to a trained step and its files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from msgspec.structs import asdict

from compiler.timing.units import Pace, find_batch
from graphspec.analysis.evaluation import (
    find_eval_dataset,
    find_goal,
    find_image_mode,
    find_image_role,
    find_recomputed,
    find_role,
)
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp
from graphspec.declare.run import BestSpec, StopSpec
from graphspec.write.render import render
from runtime import api
from runtime.checkpoints import Store
from runtime.checkpoints.disk import remove_hidden
from runtime.checkpoints.format import find_versions
from runtime.data import AnyFeed, open_feed
from runtime.data.inspection import Inspector
from runtime.data.share import WHOLE, Share
from runtime.engine.imports import importable
from runtime.folder import CHECKPOINTS, LOCK, cannot_write, make_folder
from runtime.interrupt import AskedToEnd, Interrupt, terminable
from runtime.processes import Alone, Processes, Silent, compare, count_started, find_launch
from runtime.terminal import INTERRUPTED, counted, show, strong
from runtime.train.allowed import make_id, recall, remember, require_all_allowed
from runtime.train.checkpointing import Keeper
from runtime.train.display import Bar, Hidden, Plain, working
from runtime.train.evaluate import Driven, Evaluation
from runtime.train.logs import format_value, open_logs, read_rows, scalars
from runtime.train.loop import BestMetric, Loop, Outcome, RunSchedule, RunState, find_length, find_run_schedule
from runtime.train.pace import find_declared_pace
from runtime.train.plots import ImageLogger, draw_curves
from runtime.train.resume import Past, find_checkpoint, find_past
from runtime.train.run_folder import Lengths, Lock, Record, fingerprint, write_record
from runtime.train.together import compare_tensors, digest, digest_arrays, digest_data, join

if TYPE_CHECKING:
    from compiler import Plan
    from runtime.step import Step


def introduce(session: Session, stream: TextIO) -> None:
    """Print what is trained, on what, and for how long."""
    plan = session.step.plan
    where = f"{plan.program.backend} on {session.step.device}, seed {session.record.seed}"
    if session.run_schedule.steps is None:
        length = f"{counted(session.run_schedule.epochs or 0, 'epoch')} in steps of "
    else:
        length = f"{session.run_schedule.steps:,} steps of "
    length += str(find_batch(session.spec) or "the size of each set")
    print(f"{strong(plan.spec.name, stream)}: {where}, {length}", file=stream)
    ops = plan.spec.ops.values()
    models = [name for name in plan.spec.models if name in session.step.sizes]
    width = max(map(len, models), default=0)
    for name in models:
        changes = [f"trained with {item.rule}" for item in plan.program.optimizers if name in item.models]
        changes += [f"average of {op.ema}" for op in ops if isinstance(op, EmaOp) and op.into == name]
        changes += [f"copy of {op.copy_}" for op in ops if isinstance(op, CopyOp) and op.into == name]
        described = f"{session.step.sizes[name]:>12,} parameters, {', '.join(changes) or 'not trained'}"
        print(f"  {name:{width}}{described}", file=stream)
    inspectors = (part.inspector for part in session.feed.parts)
    noted = dict.fromkeys(note for each in inspectors if each is not None for note in each.notes)
    for note in (*session.step.notes, *noted):
        print(f"  note: {note}", file=stream)
    for change in session.past.changes if session.past is not None else ():
        print(f"  changed: {change}", file=stream)
    print(f"{'writing to' if session.past is None else 'resuming in'} {session.folder}/\n", file=stream, flush=True)


def resumed(step: int, notes: Sequence[str], stream: TextIO) -> None:
    """Print where a run resumes, and notes on its data."""
    for note in notes:
        print(f"note: {note}", file=stream)
    print(f"resuming after step {step:,}\n", file=stream, flush=True)


def sum_up(outcome: Outcome, folder: Path, stream: TextIO) -> None:
    """Print the first and the last value of each output, the speed, and the files that were written."""
    print(file=stream)
    names = list(dict.fromkeys(name for row in outcome.rows for name in row.values))
    width = max((len(name) for name in names), default=0)
    if names:
        print(f"  {'':{width}}  {'first':>10}  {'last':>10}", file=stream)
    for name in names:
        values = [row.values[name] for row in outcome.rows if name in row.values]
        print(f"  {name:{width}}  {format_value(values[0]):>10}  {format_value(values[-1]):>10}", file=stream)
    print(file=stream)
    best, stop = outcome.state.best, outcome.state.stop
    if best is not None and best.value is not None:
        place = f"step {best.step:,} ({CHECKPOINTS}/step-{best.step})"
        print(f"best {best.metric}: {format_value(best.value)} at {place}", file=stream)
    if outcome.exhausted and stop is not None:
        since = f"since step {stop.step:,}" if stop.step is not None else "at all"
        reason = f"{stop.metric} has not become better {since}"
        print(f"stopped at step {outcome.state.made:,}: {reason}", file=stream)
    seconds = outcome.seconds - outcome.warmup  # the first step also warms up
    speed = f", {(outcome.steps - 1) / seconds:.4g} steps/s" if outcome.steps > 1 and seconds > 0 else ""
    print(f"{outcome.steps:,} steps in {outcome.seconds:.1f} s{speed}", file=stream)
    print(f"wrote {folder}/", file=stream)
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == LOCK:
            continue
        line = path.name
        if path.is_dir():
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            shown = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
            line += f"/ ({', '.join(sorted(each.name for each in path.iterdir()))}; {shown})"
        print(f"  {line}", file=stream)
    stream.flush()


KEPT = 3
"""How many checkpoints are kept where the spec does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of the user; None means what the spec says, or the default."""

    path: Path
    spec: GraphSpec
    overrides: Sequence[str]
    backend: str | None
    """The framework; None means that of the resumed run, or PyTorch."""
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
    jit: Literal["step", "dynamic"] | None = None
    """Whether each function that trains is captured as one graph, for each size of batch or for all."""
    stream: TextIO
    moving: bool
    """Whether the stream is a terminal on which a bar can move."""
    processes: Processes = field(default_factory=Alone)
    """The processes that take the run together."""

    @property
    def is_first(self) -> bool:
        """Return whether this process is the one that reads and writes the folder of the run, and shows it."""
        return self.processes.rank == 0

    def report(self, text: str) -> None:
        """Print a line about what takes long, such as compiling a graph, in the first process."""
        if self.is_first:
            print(f"  {text}", file=self.stream, flush=True)

    @property
    def replaying(self) -> str:
        """Return the command line that replays a kept step, up to the name of its folder."""
        device = () if self.device == "auto" else (self.device,)
        backend = () if self.backend is None else (self.backend,)
        options = {"-s": self.overrides, "--backend": backend, "--device": device, "--allow": self.allow}
        given = [word for name, values in options.items() for value in values for word in (name, value)]
        return shlex.join(["stepgraph", "run", str(self.path), *given, "--replay"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run that is ready to start, or to resume from its newest checkpoint."""

    request: Request
    record: Record
    past: Past | None
    run_schedule: RunSchedule
    step: Step
    feed: AnyFeed
    evaluated: AnyFeed | None
    """The data that the run evaluates on."""
    recomputed: Mapping[str, AnyFeed]
    """The averages whose statistics are computed anew before every evaluation, each with its data."""
    shown: AnyFeed | None
    """The data whose first batch makes the images, where that is not the training data."""
    folder: Path

    @property
    def spec(self) -> GraphSpec:
        """Return the spec of the run."""
        return self.request.spec

    def train(self) -> Outcome:
        """Train, and write logs, pictures, curves and checkpoints, also when the user stopped the run."""
        if not self.request.is_first:
            return self._make_loop().run()
        with Lock(self.folder):
            try:
                remove_hidden(self.folder)
                outcome = self._make_loop().run()
                draw_curves(outcome.rows, self.folder / "curves.png", title=self.spec.name)
            except BaseException as error:
                # Where nothing was written, the folder is left empty: while the lock is held, no other process uses it.
                if [path.name for path in self.folder.iterdir()] == [LOCK]:
                    (self.folder / LOCK).unlink(missing_ok=True)
                if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                    raise cannot_write(Path(error.filename or self.folder), error) from error
                raise
        return outcome

    def _make_loop(self) -> Loop:
        """Return the loop of the run, at the newest checkpoint where the run resumes."""
        run, past, processes = self.spec.run, self.past, self.request.processes
        keeper = Keeper(
            step=self.step,
            feed=self.feed,
            store=Store(self.folder / CHECKPOINTS, KEPT if run.checkpoint is None else run.checkpoint.keep),
            origin={
                "name": self.spec.name,
                "seed": self.record.seed,
                "backend": self.record.backend,
                "device": self.step.device,
                "plan": self.record.plan,
            },
            processes=processes,
        )
        state = RunState(best=_watch(self.spec, run.best), stop=_watch(self.spec, run.stop))
        checkpoint = None if past is None else processes.share(lambda: find_checkpoint(keeper.store))
        if checkpoint is not None:
            keeper.restore(checkpoint, state)
            keeper.prune(state)  # a kill may have come between a checkpoint and that
            if self.request.is_first:
                resumed(state.made, self.feed.notes, self.request.stream)
        if self.request.is_first:
            self._write_record(state.made)
        driven: Driven = self.step
        if self.request.debug is not None:
            from runtime.debugging import Watched

            command = self.request.replaying
            driven = Watched(self.step, self.folder, command=command, seed=self.record.seed)
        rows = processes.share(lambda: read_rows(self.folder, state.made, state.rows)) if state.made else ()
        state.rows = len(rows)
        evaluation = None
        if run.eval is not None and self.evaluated is not None:
            evaluation = Evaluation.of(self.spec, driven, self.evaluated, run.eval.mode, self.recomputed)
        display = (Bar if self.request.moving else Plain) if self.request.is_first else Hidden
        return Loop(
            step=driven,
            feed=self.feed,
            run_schedule=self.run_schedule,
            display=display(self.request.stream, self.run_schedule.steps),
            state=state,
            sinks=open_logs(self.folder, run.log, rows, state.made) if self.request.is_first else (),
            image_logger=None if run.images is None else self._open_image_logger(driven, state.made),
            evaluation=evaluation,
            saver=keeper,
            patience=None if run.stop is None else run.stop.patience,
            rows=list(rows),
            processes=processes,
            compare=partial(compare_tensors, self.step, processes),
            interrupt=Interrupt(processes.agree, processes.has_failed),
        )

    def _write_record(self, made: int) -> None:
        """Write the record, before any log: a folder with logs alone is not a run that can be resumed."""
        past = self.past
        if past is None or past.record != self.record:
            until = f"run-until-{made}.json"  # where the numbers change, the earlier record is kept, too
            changed = past is not None and made and not past.record.computes_as(self.record)
            if past is not None and changed and not (self.folder / until).exists():
                write_record(self.folder, past.record, until)
            write_record(self.folder, self.record)
        remember(self.folder, self.record.id, self.request.path.parent, self.request.allow)

    def _open_image_logger(self, step: Driven, made: int) -> ImageLogger:
        """Return the image logger; a resumed run, too, draws its first batch, where that can be read."""
        batch = None if self.shown is None else self.shown.first()
        if self.shown is None and self.past is not None and self.feed.length is not None:
            batch = self.feed.first()  # the images of a new run are made of the first batch that it trains on
        return ImageLogger(
            step=step,
            spec=self.spec,
            mode=find_image_mode(self.spec) or "train",
            folder=self.folder,
            every=self.run_schedule.show.steps,
            batch=batch,
            seen=made > 0,
            writes=self.request.is_first,
        )


def _watch(spec: GraphSpec, watched: BestSpec | StopSpec | None) -> BestMetric | None:
    """Return the best value of a figure before the first evaluation."""
    if watched is None:
        return None
    goal = find_goal(spec, watched) or "min"
    delta = watched.min_delta if isinstance(watched, StopSpec) else 0.0
    return BestMetric(metric=watched.metric, mode=goal, min_delta=delta)


DEFAULT = "torch"
"""The framework of a new run where none is named."""


def perform(request: Request) -> Outcome:
    """Run a spec from its data to its files, or resume a run.

    Where a launcher has started several processes, all of them take it together, and the first that fails says why.

    Raises SpecError for any problem of spec, data or run; a folder that nothing was written to is removed. Raises
    Silent in the processes that have nothing to say.
    """
    with importable(request.path.parent), speechless(), terminable():
        processes = join(request.spec, request.backend or DEFAULT, request.device, is_debugging=bool(request.debug))
        try:
            outcome = take_part(replace(request, processes=processes))
        except BaseException as error:
            raised = processes.report(error)
            if raised is error:
                raise
            raise raised from None
        processes.leave()
    if outcome.interrupted and processes.rank:
        raise Silent(INTERRUPTED)
    return outcome


@contextmanager
def speechless() -> Generator[None]:
    """Let a launcher end one of several processes without a word, as where it has lost another: it says which."""
    try:
        yield
    except AskedToEnd:
        if count_started() == 1:
            raise
        raise Silent(INTERRUPTED) from None


def take_part(request: Request) -> Outcome:
    """Run a spec as one of the processes that were started for it."""
    processes = request.processes
    compare(processes, lambda: {**describe_command(request), **find_versions(request.backend or DEFAULT)})
    request = replace(request, device=processes.find_device(request.device), moving=request.moving and request.is_first)
    session = prepare(request)
    try:
        if request.is_first:
            introduce(session, request.stream)
        outcome = session.train()
    except BaseException:
        with suppress(OSError):
            if request.is_first:
                session.folder.rmdir()  # fails unless nothing was written to it
        raise
    if request.is_first:
        sum_up(outcome, session.folder, request.stream)
    return outcome


def describe_session(step: Step, feed: AnyFeed) -> dict[str, str]:
    """Return what the processes of a run have before its first step, by what a message calls it."""
    return {
        "training data": digest_data(feed),
        "plan": fingerprint(step.plan),
        "initial weights": digest_arrays({name: step.numpy(each) for name, each in step.tensors().items()}),
    }


def describe_command(request: Request) -> dict[str, str]:
    """Return what the processes of a run are started with, by what a message calls it."""
    return {
        "spec": digest(render(request.spec).encode()),
        "backend": request.backend or DEFAULT,
        "order": request.order,
        "seed": str(request.spec.seed if request.seed is None else request.seed),
        "number of steps": str(request.steps or request.spec.run.steps),
        "--resume": str(request.resume),
    }


def retake(request: Request, folder: Path) -> Mapping[str, float]:
    """Replay a step that ``--debug nan`` kept; return its scalar outputs.

    Raises SpecError: the error of the step, where it occurs again; GS240-GS242, GS263, GS264 a folder that does not
    hold such a step.
    """
    from runtime.debugging import find_framework, find_seed, replay

    with importable(request.path.parent), terminable():
        seed = find_seed(folder)
        backend = request.backend or find_framework(folder)
        plan = _compile(request, backend, find_declared_pace(request.spec, request.path) or Pace())
        step = _build(request, plan, seed, weights=False)
        outputs = replay(folder, step)
    return scalars({name: step.numpy(value) for name, value in outputs.items()})


def prepare(request: Request) -> Session:
    """Return the run, ready to train; the data is opened before a framework is imported, so that errors come early."""
    processes = request.processes
    past = processes.share(lambda: find_past(request.spec, request.out, request.backend, resume=request.resume))
    if past is not None:
        before = processes.share(lambda: recall(past.folder, past.record.id, request.path.parent))
        request = replace(request, allow=tuple(dict.fromkeys((*before, *request.allow))))
    seed = request.seed
    if seed is None:
        has_changed = past is None or any(change.path == "seed" for change in past.changes)
        seed = request.spec.seed if past is None or has_changed else past.record.seed
    backend = request.backend or (DEFAULT if past is None else past.record.backend)
    evaluating = None if request.spec.run.eval is None else find_role(request.spec)
    showing = find_image_role(request.spec)
    recomputed = {} if evaluating is None else dict(find_recomputed(request.spec))
    roles = dict.fromkeys(r for r in ("train", evaluating, showing, *recomputed.values()) if r is not None)
    require_all_allowed(request.spec, tuple(roles), request.allow, lambda: _plan_ahead(request, backend).program)
    share = Share(rank=processes.rank, count=processes.count)
    feed = _open(request, "train", seed, share=share)
    evaluated = None
    if evaluating is not None and request.spec.run.eval is not None:
        part = WHOLE if request.spec.run.eval.mode == "infer" else share  # that mode does not communicate
        evaluated = _open(request, evaluating, seed, find_eval_dataset(request.spec), share=part)
    part = WHOLE if find_image_mode(request.spec) == "infer" else share
    shown = (
        None
        if showing == "train" and (part is share or processes.count == 1)
        else _open(request, showing, seed, share=part)
    )
    feeds = {average: _open(request, role, seed) for average, role in recomputed.items()}
    wanted = request.steps if request.steps is not None or past is None else past.record.steps or None
    pace = find_pace(request.spec, feed, wanted)
    run_schedule = find_run_schedule(request.spec, pace)
    plan = _compile(request, backend, pace)
    step = _build(request, plan, seed, weights=past is None)
    for each in (feed, evaluated, shown, *feeds.values()):
        if each is not None:
            each.attach(step)
    if request.spec.run.check_data:
        for part in feed.parts:
            part.inspector = Inspector.of(step.plan, dataset=part.place.dataset)
    compare(processes, lambda: describe_session(step, feed))
    folder = processes.share(lambda: make_folder(request.spec.name, request.out) if past is None else past.folder)
    return Session(
        request=request,
        record=_describe(
            request, step, seed, wanted, folder, make_id() if past is None else past.record.id or make_id()
        ),
        past=past,
        run_schedule=run_schedule,
        step=step,
        feed=feed,
        evaluated=evaluated,
        recomputed=feeds,
        shown=shown,
        folder=folder,
    )


def find_pace(spec: GraphSpec, feed: AnyFeed, wanted: int | None) -> Pace:
    """Return the lengths of an epoch, a step and the run, where they are known in advance."""
    return Pace(epoch=feed.length, batch=find_batch(spec), run=find_length(spec, feed.length, wanted))


def _open(request: Request, role: str, seed: int, dataset: str | None = None, share: Share = WHOLE) -> AnyFeed:
    directory = request.path.parent
    return open_feed(
        request.spec, role, seed=seed, allow=request.allow, directory=directory, dataset=dataset, share=share
    )


def _plan_ahead(request: Request, backend: str) -> Plan:
    """Return the plan with the lengths that are known before the data is opened."""
    from compiler import compile_step

    pace = find_declared_pace(request.spec, request.path)
    return compile_step(request.spec, backend=backend, order=request.order, pace=pace, pending=True)


def _compile(request: Request, backend: str, pace: Pace) -> Plan:
    """Return the plan after printing its warnings."""
    from compiler import compile_step

    plan = compile_step(request.spec, backend=backend, order=request.order, pace=pace)
    if request.is_first:
        show(plan.warnings, request.spec.texts())
    return plan


def _build(request: Request, plan: Plan, seed: int, *, weights: bool) -> Step:
    with working(request.stream, f"building {request.spec.name}", moving=request.moving):
        return api.build(
            plan,
            device=request.device,
            seed=seed,
            allow=request.allow,
            debug=request.debug is not None,
            jit_compile=request.jit_compile,
            jit=request.jit,
            weights=weights,  # a resumed run restores its own
            report=request.report,
        )


def _describe(request: Request, step: Step, seed: int, wanted: int | None, folder: Path, id: str) -> Record:
    """Return the record of a run; its ``steps`` are the user's, 0 where the spec says how many."""
    try:
        path = os.path.relpath(request.path, folder)  # so that both may be moved together
    except ValueError:  # on another drive of Windows
        path = os.path.abspath(request.path)
    return Record(
        name=request.spec.name,
        versions=find_versions(step.plan.program.backend),
        seed=seed,
        device=step.device,
        backend=step.plan.program.backend,
        order=request.order,
        steps=wanted or 0,
        spec=render(request.spec),
        overrides=tuple(request.overrides),
        plan=fingerprint(step.plan),
        source=step.source,
        allow=tuple(request.allow),
        spec_path=path,
        pace=Lengths(**asdict(step.plan.pace)),
        launch=find_launch(),
        id=id,
    )
