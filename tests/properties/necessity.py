"""Undo deferrals and retained graphs one by one, and look what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np

from compiler import Plan
from compiler.program import Program
from graphspec.diagnostics import SpecError
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import find_difference, modes_of, run, run_oracle
from tests.properties.execution import Execution
from tests.properties.plans import plan_of
from tests.properties.programs import emit_changed, find_deferred, find_kept
from tests.properties.specs import random_spec

Steps = list[tuple[dict, dict]]


@dataclass(kw_only=True)
class Undone:
    """What came of undoing decisions: raised, changed the numbers, or neither."""

    tried: int = 0
    raised: int = 0
    changed: int = 0
    idle: int = 0
    """Not met in the steps that are taken, or an update that moves nothing: nothing can be told."""
    commuting: int = 0
    """The same without, but only the order of writes of the same weights was undone, as plain SGD allows."""
    thin: int = 0
    """The same without, but what a gradient still reads is a model of one tensor, which saves nothing."""
    needless: list[str] = field(default_factory=list)
    """The result is the same without."""


def undo_deferrals(seeds: Iterable[int], order: str = "listed") -> Undone:
    """Write every deferred update right behind its gradient."""
    found = Undone()
    for seed, plan in _plans(seeds, order):
        right = _run(plan, None)
        for function, write, program, excuse in find_deferred(plan):
            models = [model for part in write.parts for model in part.models]
            if right is None or not _moves(plan, right, function.gated, models):
                found.tried, found.idle = found.tried + 1, found.idle + 1
                continue
            before = len(found.needless)
            _judge(found, plan, program, right, f"seed {seed}: {write.op} in {function.name}")
            if excuse and len(found.needless) > before:
                found.needless.pop()
                found.commuting += excuse == "among writes"
                found.thin += excuse == "one tensor"
    return found


def undo_retains(seeds: Iterable[int], order: str = "fewest") -> Undone:
    """Free the graph of every gradient that keeps it."""
    found = Undone()
    for seed, plan in _plans(seeds, order):
        right = _run(plan, None)
        for function, gradient, program in find_kept(plan):
            if right is None or not _is_met(plan, function.gated):
                found.tried, found.idle = found.tried + 1, found.idle + 1
                continue
            _judge(found, plan, program, right, f"seed {seed}: {gradient.op} in {function.name}")
    return found


def _plans(seeds: Iterable[int], order: str) -> Iterable[tuple[int, Plan]]:
    for seed in seeds:
        try:
            yield seed, plan_of(random_spec(Random(seed)), order)
        except SpecError:
            continue


def _run(plan: Plan, program: Program | None) -> Steps | None:
    """Return the steps of a plan, or of a program in its place; None where they are degenerate."""
    execution = Execution(plan, None if program is None else emit_changed(program))
    try:
        run_oracle(plan.spec, execution.shapes(), modes_of(plan)[:3])
    except DegenerateError:
        return None
    return run(execution, plan.spec, modes_of(plan)[:3])


def _judge(found: Undone, plan: Plan, program: Program, right: Steps, what: str) -> None:
    found.tried += 1
    try:
        wrong = run(Execution(plan, emit_changed(program)), plan.spec, modes_of(plan)[:3])
    except RuntimeError:
        found.raised += 1
        return
    if find_difference(wrong, right):
        found.changed += 1
    else:
        found.needless.append(what)


def _is_met(plan: Plan, gated: tuple[str, ...]) -> bool:
    """Return whether a function is one of those that three steps pick."""
    names = Execution(plan).names
    clock, gates = names.get("clock"), names.get("gates")
    if gates is None:
        return True
    for _ in range(3):
        clock.start("train")
        fired = gates.fire("train")
        clock.finish()
        if fired == gated:
            return True
    return False


def _moves(plan: Plan, right: Steps, gated: tuple[str, ...], models: list[str]) -> bool:
    """Return whether a function is met, and the models of an update move in these steps."""
    states = [Execution(plan).state(), *(state for _, state in right)]
    moved = [
        max(np.abs(after[model][name] - before[model][name]).max(initial=0) for name in before[model])
        for before, after in pairwise(states)
        for model in models
    ]
    return _is_met(plan, gated) and min(moved) > 1e-7
