"""The steps in a plain loop, as tutorials and an expert write them."""

from __future__ import annotations

from benchmarks.peers.pace import Pace
from benchmarks.workloads import Step, Workload


def loop(step: Step, pace: Pace) -> None:
    """Take steps."""
    for batch in pace:
        pace.keep(step(batch))


def idiom(workload: Workload, pace: Pace) -> None:
    """Take the steps that tutorials write."""
    loop(workload.idiom(), pace)


def expert(workload: Workload, pace: Pace) -> None:
    """Take an expert's steps."""
    loop(workload.expert(), pace)
