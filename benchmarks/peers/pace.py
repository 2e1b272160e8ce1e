"""What a loop gets its batches from: slices of steps that another process asks for, timed where the loop runs."""

from __future__ import annotations

import gc
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

CHECKED = 5
"""The first steps, whose losses are compared."""
WARM = 2
"""The steps of a slice before the clock runs: other processes have had the caches."""
Clock = Callable[[], float]


class Pace:
    """The pace of one variant: it blocks the loop between two slices, so that variants take turns.

    ``begun``: when the framework was imported, as :func:`time.perf_counter` says it.
    """

    def __init__(self, batches: Sequence[Any], orders: TextIO, answers: TextIO, begun: float) -> None:
        self.batches, self.orders, self.answers, self.begun = batches, orders, answers, begun
        self.losses: list[dict[str, float]] = []
        self.before = peak_memory()
        self.first = 0.0
        """Seconds from the import of the framework to the end of the first step."""

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Keep the losses of a step if it is one of the first."""
        if len(self.losses) < CHECKED:
            # The GAN of the tutorial also returns a list of scores.
            self.losses.append({name: float(each) for name, each in outputs.items() if not isinstance(each, list)})
            self.first = self.first or time.perf_counter() - self.begun

    def __iter__(self) -> Iterator[Any]:
        """Yield batches without end.

        A request for a batch says that the step before it is over, or one earlier where a loop reads a batch ahead: so
        between two requests that are n steps apart there is the work of n steps.
        """
        feed = itertools.cycle(self.batches)
        for count in self.slices():
            yield from itertools.islice(feed, WARM)
            wall, cpu = time.perf_counter(), time.process_time()
            yield from itertools.islice(feed, count)
            self.answer(time.perf_counter() - wall, time.process_time() - cpu, count)

    def slices(self) -> Iterator[int]:
        """Yield how many steps to take and to :meth:`answer` for; the process ends where no more are wanted."""
        for line in self.orders:
            gc.disable()
            yield int(line)
            gc.enable()
        os._exit(0)  # inside of the loop of a library, which has its own ideas of an end

    def answer(self, wall: float, cpu: float, count: int) -> None:
        """Say how long a slice took, in seconds for each step."""
        found = {
            "wall": wall / count,
            "cpu": cpu / count,
            "losses": self.losses,
            "first": self.first,
            "before": self.before,
            "peak": peak_memory(),
        }
        print(json.dumps(found), file=self.answers, flush=True)


def find_folder() -> Path:
    """Return where the data and the initial weights of a step are: ``data.npz``, and a file for each model."""
    return Path(os.environ["STEPGRAPH_PEERS"])


def peak_memory() -> float:
    """Return the most MB that this process has had in memory so far."""
    try:
        # Unlike ru_maxrss, it does not begin with the memory of the process that started this one.
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6
