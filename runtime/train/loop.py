"""The training loop: a step on one batch after another, logged, evaluated, saved, and stopped when asked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Protocol

from pydantic import Field

from compiler.timing.units import Pace
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import SpecError
from runtime.data import AnyFeed
from runtime.data.arrays import Batch, dataset_of
from runtime.interrupt import Interrupt
from runtime.problems import problem
from runtime.processes import Alone, Processes
from runtime.state import Plain, PlainModel
from runtime.train.display import Display
from runtime.train.evaluate import Driven, Evaluation
from runtime.train.logs import Log, Row, not_finite, read_latest
from runtime.train.plots import ImageLogger

DEFAULT_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How often something is done: every so many steps, or at the end of every so many epochs."""

    steps: int | None = None
    epochs: int | None = None

    def is_due(self, *, step: int) -> bool:
        """Return whether it is due after a step, counted from 1."""
        return self.steps is not None and step % self.steps == 0

    def is_due_at_end(self, *, epoch: int) -> bool:
        """Return whether it is due at the end of an epoch, counted from 1."""
        return self.epochs is not None and epoch % self.epochs == 0


NEVER = Interval()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """The schedule of a run: its length in steps, or in epochs of unknown length, and how often each thing is done."""

    steps: int | None
    epochs: int | None = None
    log_every: int
    evaluate: Interval = NEVER
    save: Interval = NEVER
    show: Interval = NEVER
    compare: Interval = NEVER
    """How often what all processes must have in common is compared."""

    def find_event(self, made: int) -> int:
        """Return the first step after so many that does more than train: is logged, evaluated, compared or saved."""
        every = (self.log_every, self.evaluate.steps, self.save.steps, self.compare.steps)
        ends = (1, self.steps)
        events = [made - made % each + each for each in every if each] + [each for each in ends if each and each > made]
        return min(events)


def find_run_schedule(spec: GraphSpec, pace: Pace) -> RunSchedule:
    """Return the schedule of a spec's run; ``pace.run`` is its length in steps, where that is known.

    Raises SpecError (GS249) for a time in epochs, samples or shares of the run that cannot be counted here.
    """
    run = spec.run
    every = {
        "evaluate": None if run.eval is None else run.eval.every,
        "save": None if run.checkpoint is None else run.checkpoint.every,
        "show": None if run.images is None else run.images.every,
    }
    paths = {"evaluate": ("eval", "every"), "save": ("checkpoint", "every"), "show": ("images", "every")}
    found = {name: _interval(each, pace, spec, paths[name]) for name, each in every.items() if each is not None}
    return RunSchedule(
        steps=pace.run,
        epochs=None if pace.run is not None else run.epochs,
        log_every=run.log_every,
        compare=Interval(steps=None if spec.parallel is None else spec.parallel.compare_every),
        **found,
    )


def find_length(spec: GraphSpec, epoch: int | None, wanted: int | None) -> int | None:
    """Return how many steps a run makes: ``wanted``, or what the spec says; None for epochs of unknown length."""
    if wanted is not None:
        return wanted
    if spec.run.steps is not None:
        return spec.run.steps
    if spec.run.epochs is not None:
        return None if epoch is None else spec.run.epochs * epoch
    return DEFAULT_STEPS


def _interval(every: Duration, pace: Pace, spec: GraphSpec, path: tuple[str, ...]) -> Interval:
    match every.unit:
        case "steps" | "updates":
            return Interval(steps=int(every.count))
        case "epochs" if every.count.is_integer():
            return Interval(epochs=int(every.count))
        case "epochs" if pace.epoch is not None:
            return Interval(steps=max(1, round(every.count * pace.epoch)))
        case "samples" if pace.batch is not None:
            return Interval(steps=max(1, math.ceil(every.count / pace.batch)))
        case "run" if pace.run is not None:
            return Interval(steps=max(1, round(every.count * pace.run)))
        case _:
            needed = "how long the run is" if every.unit == "run" else "how many batches an epoch has"
            message = f"`run.{'.'.join(path)}` is {every}, but it is not known here {needed}"
            span, help = spec.span("run", *path), "write it in steps: `500 steps`"
            raise problem("GS249", message, span=span, help=help, texts=spec.texts())


@dataclass(frozen=True, slots=True, kw_only=True)
class BestMetric:
    """The best value of a figure so far; ``waited`` evaluations have passed since without a better one."""

    metric: str
    mode: Literal["min", "max"]
    min_delta: float = 0.0
    value: float | None = None
    step: int | None = None
    waited: int = 0

    def update(self, step: int, figures: Mapping[str, float]) -> BestMetric:
        """Return the best value after the figures of a step; figures without the metric change nothing."""
        if self.metric not in figures:
            return self
        found = figures[self.metric]
        if self.value is None:
            is_better = found == found  # NaN never is
        else:
            is_better = (found - self.value if self.mode == "max" else self.value - found) > self.min_delta
        return replace(self, value=found, step=step, waited=0) if is_better else replace(self, waited=self.waited + 1)

    def to_plain(self) -> dict[str, Plain]:
        """Return it as plain data for a checkpoint; infinities as text, because JSON has no number for them."""
        value = None if self.value is None else self.value.hex()
        return {"metric": self.metric, "mode": self.mode, "value": value, "step": self.step, "waited": self.waited}

    def restored(self, kept: KeptStanding | None) -> BestMetric:
        """Return the best value from a checkpoint; one of another metric or goal is ignored."""
        if kept is None or (kept.metric, kept.mode) != (self.metric, self.mode):
            return self
        value = None if kept.value is None else float.fromhex(kept.value)
        return replace(self, value=value, step=kept.step, waited=kept.waited)


class KeptStanding(PlainModel):
    """What :meth:`BestMetric.to_plain` gives."""

    metric: str
    mode: str
    value: str | None
    step: int | None
    waited: int


class KeptState(PlainModel):
    """What :meth:`RunState.to_plain` gives; older versions do not record the last two."""

    step: int
    seconds: float
    due: bool
    evaluated: int
    best: KeptStanding | None
    stop: KeptStanding | None
    latest: dict[str, str]
    rows: int | None = None
    planned: Annotated[tuple[int, ...], Field(strict=False)] = ()


@dataclass(slots=True, kw_only=True)
class RunState:
    """The steps made, the seconds they took, what is due, and the best so far."""

    made: int = 0
    seconds: float = 0.0
    due: bool = False
    """An evaluation was interrupted and is due."""
    evaluated: int = 0
    """The step of the newest evaluation."""
    best: BestMetric | None = None
    stop: BestMetric | None = None
    latest: dict[str, object] = field(default_factory=dict[str, object])
    """The latest value of every output since the last logged row; numbers, or values on the device."""
    rows: int | None = 0
    """How many rows were logged; None in a checkpoint of an older version, which does not record it."""
    planned: tuple[int, ...] = ()
    """The steps of the newest planned checkpoints: those written whether the run is interrupted or not."""

    def to_plain(self, latest: Mapping[str, float]) -> dict[str, Plain]:
        """Return it as plain data, floats exactly; ``latest`` are the latest values as numbers."""
        return {
            "step": self.made,
            "seconds": self.seconds,
            "due": self.due,
            "evaluated": self.evaluated,
            "best": None if self.best is None else self.best.to_plain(),
            "stop": None if self.stop is None else self.stop.to_plain(),
            "latest": {name: value.hex() for name, value in latest.items()},
            "rows": self.rows,
            "planned": list(self.planned),
        }

    def restore(self, plain: Mapping[str, Plain]) -> None:
        """Take over what :meth:`to_plain` gave. Raises ValueError for anything else."""
        kept = KeptState.read(plain)
        self.latest = {name: float.fromhex(value) for name, value in kept.latest.items()}
        self.made, self.seconds, self.due, self.evaluated = kept.step, kept.seconds, kept.due, kept.evaluated
        self.best = None if self.best is None else self.best.restored(kept.best)
        self.stop = None if self.stop is None else self.stop.restored(kept.stop)
        self.rows, self.planned = kept.rows, kept.planned


EVAL = "eval/"
"""The prefix of the figures of an evaluation."""


class Saver(Protocol):
    """Something that saves the present state of a run."""

    def save(self, run: RunState, *, planned: bool) -> None:
        """Write a checkpoint; an unplanned one is removed after the next."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run: its logged rows, its final state, the steps and seconds of this process, its end."""

    rows: tuple[Row, ...]
    state: RunState
    steps: int
    seconds: float
    warmup: float
    """The duration of its first step, in seconds."""
    interrupted: str
    """The signal that ended it; empty where none did."""
    exhausted: bool
    """It stopped because the metric had not improved for long enough."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """A run under way."""

    step: Driven
    feed: AnyFeed
    run_schedule: RunSchedule
    display: Display
    state: RunState = field(default_factory=RunState)
    sinks: Sequence[Log] = ()
    image_logger: ImageLogger | None = None
    evaluation: Evaluation | None = None
    saver: Saver | None = None
    patience: int | None = None
    rows: list[Row] = field(default_factory=list[Row])
    warned: bool = False
    dirty: bool = False
    """Whether anything has changed since the newest checkpoint."""
    processes: Processes = field(default_factory=Alone)
    """The processes that take the run together; all of them loop alike."""
    compare: Callable[[int], None] = lambda made: None
    """Compares what all of them must have in common, after so many steps."""
    event: int = 0
    """The next step that does more than train."""
    interrupt: Interrupt = field(default_factory=Interrupt)
    start: float = 0.0
    """The time at which this process would have started, had it made every step itself."""
    warmup: float = 0.0
    """The time at which its first step ended."""

    def run(self) -> Outcome:
        """Train; outputs are read from the device only in logged steps, so that no other step waits for it."""
        before = self.state.made
        begun = time.perf_counter()
        self.start = begun - self.state.seconds
        with self.display, self.interrupt:
            try:
                while not (self._is_complete() or self._is_exhausted() or self.interrupt.poll()):
                    if self.state.due:
                        self._evaluate()
                        self._save_where_due(at_end=self.feed.index == 0)
                        continue
                    try:
                        batch = self.feed.next()
                    except SpecError:
                        self._save_after_failure()
                        raise
                    if batch is None:
                        self._end_epoch()
                    else:
                        self._train(batch)
                self._finish()
            finally:
                for sink in self.sinks:
                    sink.close()
        is_cut_short = self.interrupt.requested and (not self._is_complete() or self.state.due)
        return Outcome(
            rows=tuple(self.rows),
            state=self.state,
            steps=self.state.made - before,
            seconds=time.perf_counter() - begun,
            warmup=self.warmup - begun if self.warmup else 0.0,
            interrupted=self.interrupt.name if is_cut_short else "",
            exhausted=self._is_exhausted(),
        )

    def _is_complete(self) -> bool:
        """Return whether all steps, or all epochs, were made."""
        if self.run_schedule.steps is not None:
            return self.state.made >= self.run_schedule.steps
        return self.run_schedule.epochs is not None and self.feed.epoch >= self.run_schedule.epochs

    def _is_exhausted(self) -> bool:
        stop = self.state.stop
        return stop is not None and self.patience is not None and stop.waited >= self.patience

    def _save_after_failure(self) -> None:
        """Save the run after its data or its evaluation failed; of several processes one may, and saving takes all."""
        if self.dirty and self.processes.count == 1:
            self._save()

    def _train(self, batch: Batch) -> None:
        dataset = dataset_of(batch)
        outputs = self.step(batch) if dataset is None else self.step(batch, dataset=dataset)
        state = self.state
        state.made += 1
        state.latest.update(outputs)
        self.warmup = self.warmup or time.perf_counter()
        self.dirty = True
        try:
            self.display.advance(state.made)
        except BrokenPipeError:  # as in `_show`, without a function for every step
            self.interrupt.ask("SIGPIPE")
        if self.image_logger is not None:
            self.image_logger.follow(state.made, batch, outputs)
        if state.made >= self.event:
            schedule = self.run_schedule
            if schedule.compare.is_due(step=state.made):
                self.compare(state.made)
            if state.made in (1, schedule.steps) or state.made % schedule.log_every == 0:
                values = self._log()
                if self.evaluation is None:
                    self._update_best(values)
            if schedule.evaluate.is_due(step=state.made):
                self._evaluate()
            self._save_where_due(at_end=False)
            self.event = schedule.find_event(state.made)

    def _end_epoch(self) -> None:
        epoch = self.feed.epoch
        self.dirty = True
        self.step.end_epoch()
        if self.image_logger is not None and self.run_schedule.show.is_due_at_end(epoch=epoch):
            self.image_logger.show_now(self.state.made)
        if self.run_schedule.evaluate.is_due_at_end(epoch=epoch) and self.state.evaluated != self.state.made:
            self._evaluate()
        self._save_where_due(at_end=True)

    def _save_where_due(self, *, at_end: bool) -> None:
        """Save after a step, or at the end of an epoch, where that is due; not before an evaluation is complete."""
        save = self.run_schedule.save
        is_planned = save.is_due_at_end(epoch=self.feed.epoch) if at_end else save.is_due(step=self.state.made)
        if is_planned and not self.state.due:
            self._save(planned=True)

    def _log(self) -> Mapping[str, float]:
        """Log the latest value of every output since the last row; an op that did not fire now has an earlier value."""
        values = read_latest(self.state.latest, self.step.numpy)
        self.state.latest = {}
        self._add(values)
        return values

    def _add(self, values: Mapping[str, float]) -> None:
        """Add a row to every log, and show it."""
        row = self._report(values)
        for sink in self.sinks:
            sink.add(row)
        self.state.rows = (self.state.rows or 0) + 1
        self.dirty = True

    def _report(self, values: Mapping[str, float]) -> Row:
        """Show a row, and return it."""
        self.state.seconds = time.perf_counter() - self.start
        row = Row(step=self.state.made, seconds=self.state.seconds, values=values)
        self.rows.append(row)
        self._show(lambda: self.display.measure(row))
        names = not_finite(row)
        if names and not self.warned:
            self.warned = True
            said = f"warning: not finite at step {row.step}: {', '.join(names)}; training continues"
            self._show(lambda: self.display.say(f"{said} (`--debug nan` finds where it comes from)"))
        return row

    def _show(self, show: Callable[[], None]) -> None:
        """Show something; where the output has no reader any more, the run ends as by Ctrl-C."""
        try:
            show()
        except BrokenPipeError:
            self.interrupt.ask("SIGPIPE")

    def _evaluate(self) -> None:
        """Evaluate; an evaluation that a signal interrupts is repeated when the run resumes."""
        if self.evaluation is None:
            return
        self.state.due = self.dirty = True
        try:
            figures = self.evaluation.run(self.interrupt)
            if figures is None:
                return
            for watched in (self.state.best, self.state.stop):  # an output of many numbers, or of none, has no figure
                if watched is not None and watched.metric not in figures:
                    message = f"the evaluation gives no scalar {watched.metric!r} for `best` and `stop`"
                    raise problem("GS248", message, help=f"its figures are: {', '.join(figures) or 'none'}")
        except SpecError:
            self._save_after_failure()
            raise
        self.state.due = False
        self.state.evaluated = self.state.made
        self._add({f"{EVAL}{name}": value for name, value in figures.items()})
        self._update_best(figures)

    def _update_best(self, figures_here: Mapping[str, float]) -> None:
        """Compare figures with the best so far; a run that keeps its best saves where they improve."""
        state = self.state
        if state.stop is None and state.best is None:
            return
        figures = self.processes.share(lambda: figures_here)  # so that all decide alike
        if state.stop is not None:
            state.stop = state.stop.update(state.made, figures)
        if state.best is not None:
            state.best = state.best.update(state.made, figures)
            if state.best.step == state.made:
                self._save(planned=True)

    def _save(self, *, planned: bool = False) -> None:
        """Save the present state of the run."""
        self.state.seconds = time.perf_counter() - self.start
        if self.image_logger is not None:
            self.image_logger.keep()
        if self.saver is not None:
            self.saver.save(self.state, planned=planned)
        self.dirty = False

    def _finish(self) -> None:
        """End a run: show the latest values, evaluate what was not evaluated yet, and save.

        Where it was interrupted, no row is logged: without the interruption there would be none.
        """
        state = self.state
        # This step has a row already in a run that is resumed at its end.
        last = [name for row in self.rows[-2:] if row.step == state.made for name in row.values]
        is_news = bool(state.latest) and all(name.startswith(EVAL) for name in last)
        if self.interrupt.poll():
            if is_news:
                self._report(read_latest(state.latest, self.step.numpy))
            state.due = state.due or (self._is_complete() and self._lacks_evaluation())
        else:
            if is_news:
                self._log()
            if self._lacks_evaluation():
                self._evaluate()
        if self.image_logger is not None:
            self.image_logger.finish()
        if self.dirty:
            self._save()

    def _lacks_evaluation(self) -> bool:
        return self.evaluation is not None and self.state.evaluated != self.state.made
