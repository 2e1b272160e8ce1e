"""The training loop: a step on one batch after another, logged, shown, and stopped when asked."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from runtime.data.arrays import Batch
from runtime.gallery import Gallery
from runtime.interrupt import Interrupt
from runtime.metrics import Row, not_finite, scalars
from runtime.progress import Display

DEFAULT_STEPS = 1000


class Trainable(Protocol):
    """What the loop needs of a compiled step."""

    def __call__(self, batch: Batch, mode: str = "train") -> Mapping[str, object]:
        """Run one step and return its outputs."""
        ...

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return an output as an array of the host; this waits for the device."""
        ...


class Sink(Protocol):
    """Something that keeps the logged rows."""

    def add(self, row: Row) -> None:
        """Keep a row."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run went: the rows that were logged, the steps made, the seconds they took, and whether it was stopped."""

    rows: tuple[Row, ...]
    steps: int
    seconds: float
    interrupted: bool


@dataclass(slots=True, kw_only=True)
class Loop:
    """A run under way."""

    step: Trainable
    batches: Iterator[Batch]
    steps: int
    log_every: int
    display: Display
    sinks: Sequence[Sink] = ()
    gallery: Gallery | None = None
    rows: list[Row] = field(default_factory=list[Row])
    warned: bool = False

    def run(self) -> Outcome:
        """Train; outputs are read from the device only in logged steps, so that no other step waits for it."""
        latest: dict[str, object] = {}
        made = 0
        start = time.perf_counter()
        with self.display, Interrupt() as interrupt:
            while made < self.steps and not interrupt.requested:
                batch = next(self.batches)
                outputs = self.step(batch)
                latest.update(outputs)
                made += 1
                self.display.advance(made)
                if self.gallery is not None:
                    self.gallery.follow(made, batch, outputs)
                if self._is_logged(made) or interrupt.requested:
                    self._log(made, start, latest)
        seconds = time.perf_counter() - start
        return Outcome(rows=tuple(self.rows), steps=made, seconds=seconds, interrupted=made < self.steps)

    def _is_logged(self, number: int) -> bool:
        """Tell whether a step is logged: the first, the last, and every ``log_every``-th."""
        return number in (1, self.steps) or number % self.log_every == 0

    def _log(self, number: int, start: float, latest: dict[str, object]) -> None:
        """Log the latest value of every output since the last row: one that did not fire now has an earlier value."""
        values = scalars({name: self.step.numpy(value) for name, value in latest.items()})
        latest.clear()
        row = Row(step=number, seconds=time.perf_counter() - start, values=values)
        self.rows.append(row)
        for sink in self.sinks:
            sink.add(row)
        self.display.measure(row)
        names = not_finite(row)
        if names and not self.warned:
            self.warned = True
            self.display.say(f"warning: not finite at step {number}: {', '.join(names)}; training goes on")
