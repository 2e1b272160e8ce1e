"""Evaluation: one pass over a data set in a mode that does not train, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from graphspec.analysis.evaluation import find_eval_dataset
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MetricOp
from runtime.data import AnyFeed
from runtime.data.arrays import Batch, dataset_of
from runtime.interrupt import Interrupt
from runtime.train.logs import scalars


class Driven(Protocol):
    """A built step as a run drives it: the step itself, or wrapped for debugging."""

    def __call__(self, batch: Batch, mode: str = "train", dataset: str | None = None) -> Mapping[str, object]:
        """Run one step and return its outputs."""
        ...

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return an output as an array of the host; this waits for the device."""
        ...

    def recompute_buffers(
        self, average: str, batches: Iterable[Batch], *, mode: str = "eval", dataset: str | None = None
    ) -> None:
        """Compute BatchNorm's statistics of an average anew."""
        ...

    def reset(self, mode: str = "eval") -> None:
        """Start a mode anew: its random numbers and its running metrics."""
        ...

    def end_epoch(self, mode: str = "train") -> None:
        """Record that a pass over the data has ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluates a step on a data set: always on the same batches, with the same random numbers."""

    step: Driven
    feed: AnyFeed
    mode: str
    metrics: frozenset[str]
    """Outputs that are running values already: the last value is that of the whole pass."""
    dataset: str | None = None
    """The data set of all batches, where there is one."""
    recomputed: Mapping[str, AnyFeed] = field(default_factory=dict[str, AnyFeed])
    """The averages whose statistics are computed anew first, each with its data."""

    @classmethod
    def of(
        cls,
        spec: GraphSpec,
        step: Driven,
        feed: AnyFeed,
        mode: str,
        recomputed: Mapping[str, AnyFeed] = MappingProxyType({}),
    ) -> Evaluation:
        """Return the evaluation of a spec's mode."""
        running = (name for name, op in spec.ops.items() if isinstance(op, MetricOp) and op.reset != "step")
        metrics = frozenset(running)
        return cls(
            step=step, feed=feed, mode=mode, metrics=metrics, dataset=find_eval_dataset(spec), recomputed=recomputed
        )

    def run(self, interrupt: Interrupt | None = None) -> dict[str, float] | None:
        """Return a figure for every scalar output: the value of a metric, the mean over all samples for others.

        None where an interrupt requested the end before the last batch.
        """
        if not recompute(self.step, self.recomputed, self.mode, self.dataset, interrupt):
            return None
        means: dict[str, Mean] = {}
        figures: dict[str, float] = {}
        for batch in self.feed.one_pass():
            if interrupt is not None and interrupt.poll():
                return None
            rows = self.feed.rows(batch)
            dataset = dataset_of(batch) or self.dataset
            named = {} if dataset is None else {"dataset": dataset}
            outputs = self.step(batch, mode=self.mode, **named)
            for name, value in scalars({name: self.step.numpy(each) for name, each in outputs.items()}).items():
                mean = means.setdefault(name, Mean())
                figures[name] = value if name in self.metrics else mean.add(value, rows)
        return figures


def recompute(
    step: Driven,
    averages: Mapping[str, AnyFeed],
    mode: str,
    dataset: str | None = None,
    interrupt: Interrupt | None = None,
) -> bool:
    """Compute the statistics of averages anew, each in one pass over its data; the mode starts anew.

    Returns whether all passes were whole: an interrupt ends one early.
    """
    step.reset(mode)
    for average, feed in averages.items():
        step.recompute_buffers(average, _until(interrupt, feed.one_pass()), mode=mode, dataset=dataset)
        if interrupt is not None and interrupt.poll():
            return False
        step.reset(mode)
    return True


def _until(interrupt: Interrupt | None, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, the first in any case, until an interrupt requests the end."""
    for number, batch in enumerate(batches):
        if number and interrupt is not None and interrupt.poll():
            return
        yield batch


@dataclass(slots=True)
class Mean:
    """A mean over samples, of the means of batches."""

    total: float = 0.0
    rows: int = field(default=0)

    def add(self, value: float, rows: int) -> float:
        """Add the mean over some rows; return the mean over all so far."""
        self.total += value * rows
        self.rows += rows
        return self.total / self.rows if self.rows else value
