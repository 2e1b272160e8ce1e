"""Pace: what is known of a run before it starts, and durations turned into steps by it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import final

from msgspec import Struct

from graphspec.declare.data import TrainingSets
from graphspec.declare.durations import Duration, Unit
from graphspec.declare.graph import GraphSpec


class Pace(Struct, frozen=True, kw_only=True):
    """The lengths of an epoch, a batch and a run, by which durations are converted to steps; None where unknown.

    >>> from compiler import Pace, compile_step
    >>> from graphspec import load
    >>> spec = load("examples/simultaneous-gan/simultaneous-gan.yaml")
    >>> compile_step(spec, pace=Pace(epoch=22)).pace  # the spec has the others
    Pace(epoch=22, batch=64, run=2000)
    """

    epoch: int | None = None
    """Steps of an epoch."""
    batch: int | None = None
    """Samples of a batch."""
    run: int | None = None
    """Steps of the run."""


STEPS = "or count steps: `1000 steps`"
MISSING: Mapping[Unit, tuple[str, str]] = {
    "epochs": ("how many steps an epoch has", "declare `data: {train: ...}` with a source of known length"),
    "samples": ("how many samples a step takes", "declare `data: {train: ...}` with its `batch`"),
    "run": ("how many steps the run makes", "write `run: {steps: ...}`"),
}
"""For every unit that only a run has: what must be known, and how the spec says it."""


@final
class PaceProblem(Exception):
    """A length that cannot be counted: why, the remedy, the unit whose length is not known, and the place below.

    Where only a run has the unit, the remedy given is the other one, ``or count steps``, if there is one.
    """

    def __init__(self, message: str, help: str, *, unit: Unit | None = None, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.unit: Unit | None = unit
        self.path = path

    @property
    def is_pending(self) -> bool:
        """Return whether only a length is missing that is known when a run starts."""
        return self.unit in MISSING

    def within(self, message: str, path: tuple[str | int, ...]) -> PaceProblem:
        """Return the problem of what cannot be read for this one, at a place."""
        return PaceProblem(f"{message}: {self.message}", self.help, unit=self.unit, path=path)

    def remedy(self, spec: GraphSpec) -> str:
        """Return what to write; where the spec declares the length, what to pass: compiling reads no data."""
        if self.unit is None or self.unit not in MISSING:
            return self.help
        first = MISSING[self.unit][1]
        if spec.source("train") is not None and (self.unit == "epochs" or (self.unit == "run" and spec.run.epochs)):
            first = "in Python, pass the length: `compile_step(spec, pace=Pace(epoch=..., run=...))`"
        return f"{first}, {self.help}" if self.help else first

    def notes(self, spec: GraphSpec) -> tuple[str, ...]:
        """Return who knows: a source of the user's own is imported by `run` only."""
        train = spec.source("train")
        is_own = self.unit in ("epochs", "run") and train is not None and train.class_path is not None
        return ("`data.train` is your own source: only `run` imports it, and knows its length",) if is_own else ()


def complete_pace(spec: GraphSpec, pace: Pace | None) -> Pace:
    """Return a pace with what the spec itself says where it is silent: the batch size, and the length of the run."""
    given = pace or Pace()
    run = spec.run.steps
    if run is None and spec.run.epochs is not None and given.epoch is not None:
        run = spec.run.epochs * given.epoch
    return Pace(
        epoch=given.epoch,
        batch=find_batch(spec) if given.batch is None else given.batch,
        run=run if given.run is None else given.run,
    )


def assume_pace(pace: Pace) -> Pace:
    """Return a pace with unknown lengths filled in by likely ones, to find problems that do not depend on them."""
    epoch = 1000 if pace.epoch is None else pace.epoch
    return Pace(epoch=epoch, batch=32 if pace.batch is None else pace.batch, run=pace.run or 100 * epoch)


def find_batch(spec: GraphSpec) -> int | None:
    """Return how many samples a train step takes; None where the spec does not say, or training sets differ in it."""
    train = spec.data.get("train")
    sources = train.sets.values() if isinstance(train, TrainingSets) else () if train is None else (train,)
    sizes = {source.batch for source in sources}
    return next(iter(sizes)) * spec.batches if len(sizes) == 1 else None


class ClockRates(Struct, frozen=True, kw_only=True):
    """A pace, and how many steps lie between two updates; None with what is not known, and a remedy."""

    pace: Pace
    interval: Fraction | None = None
    missing: str = "whose updates are meant"
    help: str = "count steps: `1000 steps`"

    def length(self, unit: Unit) -> Fraction:
        """Return how many steps one of a unit takes; raise PaceProblem where that is not known."""
        match unit:
            case "steps":
                return Fraction(1)
            case "updates":
                return _known(self.interval, self.missing, self.help, unit)
            case "epochs":
                return _known(self.pace.epoch, MISSING[unit][0], STEPS, unit)
            case "samples":
                return 1 / _known(self.pace.batch, MISSING[unit][0], STEPS, unit)
            case "run":
                return _known(self.pace.run, MISSING[unit][0], STEPS, unit)

    def steps(self, duration: Duration) -> Fraction:
        """Return a duration in steps; raise PaceProblem where that is not known."""
        return exact(duration.count) * self.length(duration.unit)

    def convert(self, duration: Duration, unit: Unit) -> Fraction:
        """Return a duration in another unit; raise PaceProblem where that is not known."""
        return exact(duration.count) if duration.unit == unit else self.steps(duration) / self.length(unit)


def _known(value: Fraction | int | None, missing: str, help: str, unit: Unit) -> Fraction:
    """Return what must be known."""
    if value is None:
        raise PaceProblem(f"it is not known {missing}", help, unit=unit)
    return Fraction(value)


def exact(count: float) -> Fraction:
    """Return a count exactly as written: 0.1 is one tenth, not the nearest binary number."""
    return Fraction(repr(count))
