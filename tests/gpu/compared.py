"""Numbers: steps on a device against loops by hand, the oracle, and the same steps on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random

import numpy as np
import torch

from benchmarks.run import EXPERT, WORKLOADS
from benchmarks.run import train as train_workload
from benchmarks.workloads import Workload
from compiler import compile_step
from graphspec.declare.graph import GraphSpec
from graphspec.loading import load
from tests.conformance.case import Case as Program
from tests.conformance.distance import distances, find_apart
from tests.conformance.loops import CASES, RULES, by_hand, by_spec
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import catalogue, examples, programs, specs
from tests.conformance.training import train
from tests.gpu.case import Case, deterministic, near, require
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import Record, Tally, find_error, run, try_spec
from tests.properties.execution import Execution
from tests.properties.plans import PACE
from tests.properties.specs import random_spec

CLOSE = 1e-9
"""Of two runs in float64, relative to the greatest element, at least 1: kernels add up in other orders."""
DIGIT, FLOOR = 10, 1e-6
"""How much of the CPU's rounding error in float32 a device's may be, and what is too little to compare."""
SEEDS = 2000


def steps(device: str) -> Iterator[Case]:
    """Yield the steps of the benchmarks: ours against an expert's, both on the device."""
    for workload in WORKLOADS:
        for variant in ("emitted step", "built step"):
            yield Case(name=f"{workload.name}, {variant}", run=partial(try_workload, workload, variant, device))


def try_workload(workload: type[Workload], variant: str, device: str) -> tuple[object, ...]:
    """Return how far five steps in float64 are from the expert's."""
    torch.set_default_dtype(torch.float64)
    try:
        with deterministic():
            (losses, states), (wanted, theirs) = (train_workload(workload, each, device) for each in (variant, EXPERT))
    finally:
        torch.set_default_dtype(torch.float32)
    require(states.keys() == theirs.keys(), "other weights than the expert's")
    pairs = [(np.array(losses), np.array(wanted))]
    pairs += [(states[name].cpu().numpy(), each.cpu().numpy()) for name, each in theirs.items()]
    error = max(find_error(found, meant, loose=False) for found, meant in pairs)
    near(error, CLOSE, "the farthest number")
    return (f"{error:.0e}" if error else "to the bit",)


def loops(device: str) -> Iterator[Case]:
    """Yield the published programs on the device, against loops by hand on the CPU."""
    for fused in ("fused", "not fused"):
        for rule in RULES:
            for program in CASES:
                name = f"{program.name}, {rule}, {fused}"
                yield Case(name=name, run=partial(try_loop, program, rule, fused, device))


def try_loop(program: Program, rule: str, fused: str, device: str) -> None:
    """Raise Wrong where ten steps differ from the loop by more than rounding."""
    ours, theirs = by_spec(program, rule, fused, "fewest", device), by_hand(program, program.loop, rule, "as it comes")
    for number, (found, meant) in enumerate(zip((*ours[0], ours[1]), (*theirs[0], theirs[1]), strict=True), 1):
        require(found.keys() == meant.keys(), f"step {number} has other names")
        for name, value in meant.items():
            near(find_error(found[name].numpy(), value.detach().numpy(), loose=False), CLOSE, f"step {number}: {name}")


def scenarios(device: str) -> Iterator[Case]:
    """Yield all that both backends run in the conformance suite, in float64 and, where that says something, float32."""
    for scenario in (*specs(), *programs(), *examples(), *catalogue()):
        yield Case(name=f"{scenario.name}, float64", run=partial(try_float64, scenario, device))
    for scenario in (each for each in (*specs(), *examples()) if not each.models):
        yield Case(name=f"{scenario.name}, float32", run=partial(try_float32, scenario, device))


def try_float64(scenario: Scenario, device: str) -> None:
    """Raise Wrong where twenty steps are not those of the CPU."""
    apart = find_apart(train(scenario, "torch"), train(scenario, "torch", device=device))
    require(not apart, ", ".join(f"{name} is off by {error:.1e}" for name, error in [*apart.items()][:3]))


def try_float32(scenario: Scenario, device: str) -> None:
    """Raise Wrong where twenty steps in float32 are farther from float64 than ten times what the CPU's are."""
    exact = train(scenario, "torch")
    theirs, ours = (
        max(distances(exact, train(scenario, "torch", "float32", each)).values()) for each in ("cpu", device)
    )
    near(ours, max(DIGIT * theirs, FLOOR), "the farthest number")


def oracle(device: str) -> Iterator[Case]:
    """Yield random specs, on the CPU and on the device, against the oracle."""
    yield from (Case(name=f"seed {seed}", run=partial(try_seed, seed, device)) for seed in range(SEEDS))


def try_seed(seed: int, device: str) -> None:
    """Raise Wrong where a random spec differs from what the oracle says."""
    document = random_spec(Random(seed))
    meant = load(json.dumps(document) + "\n")  # its data sets take turns in this order, however it is written
    try:
        mismatch = try_spec(document, ("fewest",), Tally(), partial(run_document, device, meant))
    except DegenerateError:
        return
    require(not mismatch, mismatch)


def run_document(device: str, meant: GraphSpec, document: Mapping[str, object], modes: Sequence[str]) -> Record:
    """Return what a document gives on a device in steps of some modes, with the batches of what it means."""
    plan = compile_step(load(json.dumps(document) + "\n"), "torch", "fewest", pace=PACE)
    return run(Execution(plan, device=device), meant, modes)
