"""Time: the steps of the benchmarks, and steps that are captured as graphs, against eager ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from benchmarks import captured as graphs
from benchmarks.run import WORKLOADS, measure
from benchmarks.workloads import Workload
from tests.conformance.captured import scenarios, try_example
from tests.conformance.scenario import Scenario
from tests.gpu.case import Case, require

ROUNDS = 21
MOST = 60
"""The steps of a captured example."""
EARLY = ("gan-digits", "overflow", "distillation", "wgan-gp", "byol", "sac")


def captured(device: str) -> Iterator[Case]:
    """Yield the examples, and a spec with overflows, captured and compiled, against their eager steps in float64."""
    for scenario in sorted(scenarios(), key=lambda each: each.name not in EARLY):
        yield Case(name=scenario.name, run=partial(try_captured, scenario, device), long=True)


def try_captured(scenario: Scenario, device: str) -> tuple[object, ...]:
    """Return how many graphs and recordings there were, and how far from the eager step; raise Wrong where one is."""
    try:
        found = try_example(scenario, device=device, most=MOST)
    finally:
        torch._dynamo.reset()
    require(not found.problems, "; ".join(found.problems))
    eager = f"{len(found.eager)} eager" if found.eager else ""
    return found.graphs, found.recorded, f"{found.outputs:.0e}", f"{found.state:.0e}", f"{found.seconds:.0f}", eager


def bench(device: str) -> Iterator[Case]:
    """Yield the steps of the benchmarks, in one interleaved run each."""
    for workload in WORKLOADS:
        yield Case(name=workload.name, run=partial(time_workload, workload, device))


def time_workload(workload: type[Workload], device: str) -> tuple[object, ...]:
    """Return the expert's milliseconds, and of each other variant the ratio with 10 % and 90 %."""
    found = measure(workload, ROUNDS, device)
    expert = found.pop("expert")
    ratios = (f"{each.ratio:.2f} ({each.low:.2f} - {each.high:.2f})" for each in found.values())
    return f"{expert.milliseconds:.3f}", *ratios


def bench_captured(device: str) -> Iterator[Case]:
    """Yield the steps of the benchmarks, captured, against the emitted file and the idiom."""
    for workload in WORKLOADS:
        yield Case(name=workload.name, run=partial(time_captured, workload, device), long=True)


def time_captured(workload: type[Workload], device: str) -> tuple[object, ...]:
    """Return the captured step's milliseconds, and its ratios to the emitted file and to the idiom."""
    try:
        candidate = graphs.make_reference(workload, device)
        found = graphs.measure(candidate, ROUNDS)
    finally:
        torch._dynamo.reset()
    ratios = (graphs.Ratio.over(found[each]) for each in (graphs.EAGER, graphs.IDIOM))
    texts = (f"{each.median:.2f} ({each.low:.2f} - {each.high:.2f})" for each in ratios)
    return f"{found[graphs.CAPTURED].milliseconds:.3f}", *texts
