"""What a run does when: how long it trains, and how often it logs, evaluates, saves and shows pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.timing.units import Pace
from graphspec.diagnostics import SpecError
from graphspec.durations import Duration
from graphspec.graph import GraphSpec
from runtime.problems import problem

DEFAULT_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How often something is done: at every multiple of so many steps, or at the end of every so many epochs."""

    steps: int | None = None
    epochs: int | None = None

    def is_due(self, *, step: int) -> bool:
        """Tell whether it is due after a step, counted from 1."""
        return self.steps is not None and step % self.steps == 0

    def is_due_at_end(self, *, epoch: int) -> bool:
        """Tell whether it is due at the end of an epoch, counted from 1."""
        return self.epochs is not None and epoch % self.epochs == 0


NEVER = Interval()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """The plan of a run: its length (in steps, or in epochs of unknown length), and what is done how often."""

    steps: int | None
    epochs: int | None = None
    log_every: int
    evaluate: Interval = NEVER
    save: Interval = NEVER
    show: Interval = NEVER


def find_agenda(spec: GraphSpec, pace: Pace) -> Agenda:
    """Return when a spec's run does what; ``pace.run`` is its length in steps, where that is known.

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
    return Agenda(steps=pace.run, epochs=None if pace.run is not None else run.epochs, log_every=run.log_every, **found)


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
            raise _not_countable(every, spec, path)


def _not_countable(every: Duration, spec: GraphSpec, path: tuple[str, ...]) -> SpecError:
    needed = "how long the run is" if every.unit == "run" else "how many batches an epoch has"
    message = f"`run.{'.'.join(path)}` is {every}, and nobody knows here {needed}"
    span = spec.span("run", *path)
    return problem("GS249", message, span=span, help="write it in steps: `500 steps`", texts=spec.texts())
