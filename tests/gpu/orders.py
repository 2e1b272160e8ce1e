"""Order: a weight that is written while a backward still needs it is noticed, whichever kernel writes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import torch

from compiler import Plan, compile_step
from compiler.ir.program import Program as Compiled
from graphspec import load
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from tests.conformance.case import Case as Program
from tests.conformance.loops import CASES, FUSED, RULES
from tests.conformance.loops import built as built_loop
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import specs
from tests.conformance.training import built, schedule
from tests.gpu.case import Case, require
from tests.properties.execution import Execution
from tests.properties.necessity import Ground, undo_deferrals
from tests.properties.programs import find_deferred

STALE = "modified by an inplace operation"
"""What autograd says of a weight whose version is not the one that it saved."""
SEEDS, TOGETHER = 200, 4
"""Random specs, and how many of them are one case."""
WEIGHTS_STEPS = 4


def deferrals(device: str) -> Iterator[Case]:
    """Yield the published programs whose listed order has an update that waits, with it written at once instead."""
    for rule in RULES:
        for fused in ("fused", "not fused"):
            for program in (each for each in CASES if each.listed):
                name = f"{program.name}, {rule}, {fused}"
                yield Case(name=name, run=partial(try_program, program, rule, fused, device))


def try_program(program: Program, rule: str, fused: str, device: str) -> None:
    """Raise Wrong unless autograd stops each step in which an update does not wait, and none as it is compiled."""
    plan = compile_step(load(program.spec(f"{{{RULES[rule][1]}{FUSED[fused][0]}}}")), order="listed")
    plan = built_loop(program, plan).plan if program.given else plan  # a build finds the sizes
    found = list(find_deferred(plan))
    require(
        {write.op for _, write, _, _ in found} == program.listed, f"waiting: {[write.op for _, write, _, _ in found]}"
    )
    step_all(program, plan, plan.program, device)
    for _, write, changed, _ in found:
        try:
            step_all(program, plan, changed, device)
        except RuntimeError as error:
            require(STALE in str(error), f"without the wait of {write.op}: {error}")
        else:
            require(False, f"{write.op} was written before a backward that needs it, and autograd did not stop")


def step_all(program: Program, plan: Plan, changed: Compiled, device: str) -> None:
    """Take two steps of a compiled program with the nets of the published one."""
    nets = program.loop(partial(torch.optim.SGD, lr=0.0)).nets
    given = {name: copy.deepcopy(nets[name]) for name in program.given}
    text = emit_module(changed, TORCH, given).text
    execution = Execution(plan, text, device=device, models=given)
    for batch in program.batches(2):
        execution.step({name: each.numpy() for name, each in batch.items()})


def necessity(device: str) -> Iterator[Case]:
    """Yield random specs, a few together, each of whose deferrals is undone."""
    ground = Ground(execute=partial(Execution, device=device))
    for first in range(1, SEEDS, TOGETHER):
        seeds = range(first, first + TOGETHER)
        yield Case(name=f"seeds {seeds[0]} to {seeds[-1]}", run=partial(try_seeds, seeds, ground))


def try_seeds(seeds: range, ground: Ground) -> tuple[object, ...]:
    """Return what came of undoing deferrals; raise Wrong where one was needless."""
    found = undo_deferrals(seeds, ground=ground)
    require(not found.needless, "; ".join(found.needless))
    return found.tried, found.raised, found.changed + found.planted


def versions(device: str) -> Iterator[Case]:
    """Yield the specs of the conformance suite, which have every rule of an optimizer and every other write."""
    first = ("optimizers", "averages", "parameters")
    for scenario in sorted(specs(), key=lambda each: each.name not in first):
        yield Case(name=scenario.name, run=partial(try_versions, scenario, device))


def try_versions(scenario: Scenario, device: str) -> tuple[object, ...]:
    """Return how many weights moved; raise Wrong where one did so without a new version for autograd."""
    step, moved = built(scenario, "torch", device=device), 0
    weights = {f"{name}.{key}": each for name, net in step.models.items() for key, each in net.named_parameters()}
    for number, (mode, batch, dataset) in enumerate(schedule(step, scenario)):
        if number == WEIGHTS_STEPS:
            break
        before = {name: (each._version, each.detach().clone()) for name, each in weights.items()}
        step(batch, mode, dataset=dataset)
        for name, (version, value) in before.items():
            if not torch.equal(value, weights[name].detach()):
                moved += 1
                require(weights[name]._version > version, f"{name} was written without a new version")
    return (moved,)
