"""One run of ``stepgraph run``: from a spec to a trained step and its files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from compiler.timing.units import Pace, find_batch
from graphspec.analysis.evaluation import find_eval_dataset, find_goal, find_role
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp
from graphspec.declare.run import BestSpec, StopSpec
from graphspec.write.render import render
from runtime import api
from runtime.checkpoints import Store
from runtime.checkpoints.disk import remove_hidden
from runtime.checkpoints.format import find_versions
from runtime.data import AnyFeed, open_feed
from runtime.data.arrays import Batch
from runtime.data.inspect import Inspector
from runtime.engine.imports import importable
from runtime.folder import CHECKPOINTS, LOCK, cannot_write, make_folder
from runtime.interrupt import terminable
from runtime.terminal import counted, show, strong
from runtime.train.checkpointing import Keeper
from runtime.train.display import Bar, Display, Plain, working
from runtime.train.evaluate import Evaluation
from runtime.train.logs import format_value, open_logs, read_rows, scalars
from runtime.train.loop import Agenda, Loop, Outcome, RunState, Standing, find_agenda, find_length
from runtime.train.pace import find_declared_pace
from runtime.train.plots import Gallery, draw_curves, find_image_mode
from runtime.train.resume import Past, find_checkpoint, find_past
from runtime.train.run_folder import Lengths, Lock, Record, fingerprint, write_record

if TYPE_CHECKING:
    from runtime.debugging import Watched
    from runtime.step import Step

    Driven: TypeAlias = Step | Watched
    from compiler import Plan


def introduce(session: Session, stream: TextIO) -> None:
    """Print what is trained, on what, and for how long."""
    plan = session.step.plan
    where = f"{plan.program.backend} on {session.step.device}, seed {session.record.seed}"
    print(f"{strong(plan.spec.name, stream)}: {where}, {_describe_length(session)}", file=stream)
    lines = {name: _describe_model(session, name) for name in plan.spec.models if name in session.step.sizes}
    _print_columns(lines, stream)
    inspectors = (part.inspector for part in session.feed.parts)
    looked = dict.fromkeys(note for each in inspectors if each is not None for note in each.notes)
    for note in (*session.step.notes, *looked):
        print(f"  note: {note}", file=stream)
    for change in session.past.changes if session.past is not None else ():
        print(f"  changed: {change}", file=stream)
    print(f"{'writing to' if session.past is None else 'going on in'} {session.folder}/\n", file=stream, flush=True)


def _describe_length(session: Session) -> str:
    """Return how long the run is, and how many samples a step takes."""
    batch = find_batch(session.spec) or "the size of each set"
    if session.agenda.steps is None:
        return f"{counted(session.agenda.epochs or 0, 'epoch')} in steps of {batch}"
    return f"{session.agenda.steps:,} steps of {batch}"


def _describe_model(session: Session, name: str) -> str:
    """Return the size of a model, and what changes its weights: optimizers, an average, a copy, or nothing."""
    plan = session.step.plan
    moved = [f"trained with {item.rule}" for item in plan.program.optimizers if name in item.models]
    moved += [f"average of {op.ema}" for op in plan.spec.ops.values() if isinstance(op, EmaOp) and op.into == name]
    moved += [f"copy of {op.copy_}" for op in plan.spec.ops.values() if isinstance(op, CopyOp) and op.into == name]
    return f"{session.step.sizes[name]:>12,} parameters, {', '.join(moved) or 'not trained'}"


def _print_columns(lines: Mapping[str, str], stream: TextIO) -> None:
    width = max(map(len, lines), default=0)
    for name, text in lines.items():
        print(f"  {name:{width}}{text}", file=stream)


def resumed(step: int, notes: Sequence[str], stream: TextIO) -> None:
    """Print where a run resumes, and notes on its data."""
    for note in notes:
        print(f"note: {note}", file=stream)
    print(f"going on after step {step:,}\n", file=stream, flush=True)


def sum_up(outcome: Outcome, folder: Path, stream: TextIO) -> None:
    """Print the first and the last value of each output, the speed, and the files that were written."""
    print(file=stream)
    for line in _tabulate(outcome):
        print(line, file=stream)
    for line in (*_describe_end(outcome), f"{outcome.steps:,} steps in {outcome.seconds:.1f} s{_speed(outcome)}"):
        print(line, file=stream)
    print(f"wrote {folder}/", file=stream)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and path.name != LOCK:
            print(f"  {_describe_file(path)}", file=stream)
    stream.flush()


def _describe_end(outcome: Outcome) -> Iterator[str]:
    """Yield an empty line, then which checkpoint is the best, and why the run stopped before its end."""
    yield ""
    best, stop = outcome.state.best, outcome.state.stop
    if best is not None and best.value is not None:
        yield f"best {best.metric}: {format_value(best.value)} at step {best.step:,} ({CHECKPOINTS}/step-{best.step})"
    if outcome.exhausted and stop is not None:
        since = f"since step {stop.step:,}" if stop.step is not None else "at all"
        yield f"stopped at step {outcome.state.made:,}: {stop.metric} has not become better {since}"


def _tabulate(outcome: Outcome) -> list[str]:
    names = list(dict.fromkeys(name for row in outcome.rows for name in row.values))
    width = max((len(name) for name in names), default=0)
    lines = [f"  {'':{width}}  {'first':>10}  {'last':>10}"] if names else []
    for name in names:
        values = [row.values[name] for row in outcome.rows if name in row.values]
        lines.append(f"  {name:{width}}  {format_value(values[0]):>10}  {format_value(values[-1]):>10}")
    return lines


def _speed(outcome: Outcome) -> str:
    """Return the steps per second after the first step, which also warms up."""
    seconds = outcome.seconds - outcome.warmup
    return f", {(outcome.steps - 1) / seconds:.4g} steps/s" if outcome.steps > 1 and seconds > 0 else ""


def _describe_file(path: Path) -> str:
    if not path.is_dir():
        return path.name
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return f"{path.name}/ ({', '.join(sorted(each.name for each in path.iterdir()))}; {_show_size(size)})"


def _show_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


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
    stream: TextIO
    moving: bool
    """Whether the stream is a terminal on which a bar can move."""

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
    agenda: Agenda
    step: Step
    feed: AnyFeed
    judged: AnyFeed | None
    """The data that the run evaluates on."""
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
        self._write_record(state.made)  # before any log: a folder with logs alone is not a run that can be resumed
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
        """Write the record of the run; where it changes on the way, the earlier record is kept next to it."""
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
        """Return the state of the run: that of its newest checkpoint where it resumes, else the initial one."""
        run = self.spec.run
        state = RunState(best=_standing(self.spec, run.best), stop=_standing(self.spec, run.stop))
        checkpoint = find_checkpoint(keeper.store) if self.past is not None else None
        if checkpoint is not None:
            keeper.restore(checkpoint, state)
            keeper.prune(state)  # a kill may have come between a checkpoint and that
            resumed(state.made, self.feed.notes, self.request.stream)
        return state

    def _watch(self) -> Driven:
        """Return the step that the run drives: wrapped for debugging, where the run is debugged."""
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
        """Return the batch that pictures of a resumed run are made from: the run's first, where it can be read."""
        if self.past is None or self.feed.length is None:
            return None
        return self.feed.first()

    def _open_display(self) -> Display:
        return (Bar if self.request.moving else Plain)(self.request.stream, self.agenda.steps)


def _standing(spec: GraphSpec, watched: BestSpec | StopSpec | None) -> Standing | None:
    """Return the standing of a figure before the first evaluation."""
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
    """Name the file that could not be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(Path(error.filename or folder), error) from error


DEFAULT = "torch"
"""The framework of a new run where none is named."""


def perform(request: Request) -> Outcome:
    """Run a spec from its data to its files, or resume a run.

    Raises SpecError for any problem of spec, data or run; a folder that nothing was written to is removed.
    """
    with importable(request.path.parent), terminable():
        session = prepare(request)
        with _tidied(session.folder):
            introduce(session, request.stream)
            outcome = session.train()
    sum_up(outcome, session.folder, request.stream)
    return outcome


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
    past = find_past(request.spec, request.out, request.backend) if request.resume else None
    seed = _find_seed(request, past)
    feed = _open(request, "train", seed)
    judged = (
        None
        if request.spec.run.eval is None
        else _open(request, find_role(request.spec), seed, find_eval_dataset(request.spec))
    )
    wanted = request.steps if request.steps is not None or past is None else past.record.steps or None
    pace = find_pace(request.spec, feed, wanted)
    agenda = find_agenda(request.spec, pace)
    plan = _compile(request, request.backend or (DEFAULT if past is None else past.record.backend), pace)
    step = _build(request, plan, seed, weights=past is None)
    for each in (feed, judged):
        if each is not None:
            each.attach(step)
    if request.spec.run.check_data:
        for part in feed.parts:
            part.inspector = Inspector.of(step.plan, dataset=part.place.dataset)
    folder = make_folder(request.spec.name, request.out) if past is None else past.folder
    return Session(
        request=request,
        record=_describe(request, step, seed, wanted, folder),
        past=past,
        agenda=agenda,
        step=step,
        feed=feed,
        judged=judged,
        folder=folder,
    )


def find_pace(spec: GraphSpec, feed: AnyFeed, wanted: int | None) -> Pace:
    """Return the lengths of an epoch, a step and the run, where they are known in advance."""
    return Pace(epoch=feed.length, batch=find_batch(spec), run=find_length(spec, feed.length, wanted))


def _find_seed(request: Request, past: Past | None) -> int:
    """Return the seed: the user's, that of the resumed run, or the spec's."""
    if request.seed is not None:
        return request.seed
    changed = past is None or any(change.path == "seed" for change in past.changes)
    return request.spec.seed if past is None or changed else past.record.seed


def _open(request: Request, role: str, seed: int, dataset: str | None = None) -> AnyFeed:
    return open_feed(request.spec, role, seed=seed, allow=request.allow, directory=request.path.parent, dataset=dataset)


def _compile(request: Request, backend: str, pace: Pace) -> Plan:
    """Return the plan after printing its warnings."""
    from compiler import compile_step

    plan = compile_step(request.spec, backend=backend, order=request.order, pace=pace)
    show(plan.warnings, request.spec.texts())
    if request.spec.run.images is not None:
        find_image_mode(request.spec, plan.program)
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
            weights=weights,  # a resumed run restores its own
        )


def _describe(request: Request, step: Step, seed: int, wanted: int | None, folder: Path) -> Record:
    """Return the record of a run; its ``steps`` are the user's, 0 where the spec says how many."""
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
        spec_path=_find_way(folder, request.path),
        pace=Lengths(**asdict(step.plan.pace)),
    )


def _find_way(folder: Path, path: Path) -> str:
    """Return a path relative to a folder, so that both may be moved together."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:  # on another drive of Windows
        return os.path.abspath(path)


@contextmanager
def _tidied(folder: Path) -> Generator[None]:
    """Remove a folder that nothing was written to."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # fails unless it is empty
        raise
