"""The steps with Ignite: an ``Engine`` calls a process function, which is plain PyTorch: the expert's step.

https://docs.pytorch.org/ignite/concepts.html
"""

from __future__ import annotations

from typing import Any

from ignite.engine import Engine

from benchmarks.peers.pace import Pace
from benchmarks.workloads import Batch, Workload

ENDLESS = 10**9


def run(workload: Workload, pace: Pace) -> None:
    """Take steps inside of `run`."""
    step = workload.expert()

    def process(engine: Engine, batch: Batch) -> Any:
        """Take a step."""
        losses = step(batch)
        pace.keep(losses)
        return losses

    Engine(process).run(pace, max_epochs=1, epoch_length=ENDLESS)
