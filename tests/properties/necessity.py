"""Undo deferrals and retained graphs one by one, and see what happens: ``python -m tests.properties.necessity 100``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from itertools import pairwise
from random import Random

import numpy as np

from compiler import Plan
from compiler.ir.program import Function
from graphspec.diagnostics import SpecError
from runtime.api import emit
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import find_difference, find_turns, run, run_oracle, take
from tests.properties.awaiting import Awaiting, Steps, find_awaiting, is_of, run_planted
from tests.properties.execution import Execution
from tests.properties.plans import plan_of
from tests.properties.programs import emit_changed, find_deferred, find_kept
from tests.properties.specs import base_spec, random_spec

TRAINING = ["train"] * 6
"""So many steps are taken: within them nearly every set of ops that fire together occurs."""
BLOCK = 50
"""After so many specs the command says how far it is."""


@dataclass(kw_only=True)
class Undone:
    """What came of undoing decisions: raised, changed the numbers, or neither, and why that may be."""

    tried: int = 0
    raised: int = 0
    """PyTorch stopped."""
    changed: int = 0
    """Other numbers."""
    planted: int = 0
    """Other numbers once the gradients of the updates whose verdicts are awaited overflow."""
    degenerate: int = 0
    """PyTorch did not stop, and the spec is not judged by its numbers: training diverges, or hangs on rounding."""
    unmet: int = 0
    """The same without, as the ops that fire together here never do so in the steps that are taken."""
    commuting: int = 0
    """The same without, but only the order of writes of the same weights was undone, as plain SGD allows."""
    thin: int = 0
    """The same without, but what a gradient still reads is a model of one tensor or a sum, which saves nothing."""
    resting: int = 0
    """The same without, but of what a gradient still reads a part is currently frozen, which the write leaves alone."""
    unseen: int = 0
    """The same without, but nobody sees the numbers of the forward that would see other weights."""
    inner: int = 0
    """The same without, but what gradients share is the path of another that one of them differentiates again."""
    still: int = 0
    """The same without, as the update moves nothing in some step: its learning rate or its gradient is zero."""
    needless: list[str] = field(default_factory=list)
    """The same without, and no excuse."""

    def add(self, other: Undone) -> None:
        """Add what came of other specs."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def row(self, name: str) -> str:
        """Return the figures as a row of a table."""
        figures = [getattr(self, one.name) for one in fields(self)]
        counts = [len(one) if isinstance(one, list) else one for one in figures]
        return f"| {name} | {' | '.join(f'{one:,}' for one in counts)} |"

    def count(self, outcome: str) -> None:
        """Count an outcome by its name."""
        setattr(self, outcome, getattr(self, outcome) + 1)


def plan_seed(seed: int, order: str, make: Callable[[Random], dict] = random_spec) -> Plan:
    """Return the plan of a random spec; raise SpecError where it has none."""
    return plan_of(make(Random(seed)), order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where decisions are undone: how a seed is planned, and how a plan, or its text changed, is executed."""

    plan: Callable[[int, str], Plan] = plan_seed
    execute: Callable[..., Execution] = Execution
    plan_for_torch: Callable[[int, str], Plan] = plan_seed
    """The same spec for PyTorch, whose names the oracle goes by."""


TORCH = Ground()
BASE = Ground(plan=partial(plan_seed, make=base_spec), plan_for_torch=partial(plan_seed, make=base_spec))
"""The specs of the first parts of the language alone."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """A plan, and the steps that it gives, which are taken once something is compared with them."""

    ground: Ground

    seed: int
    plan: Plan
    plan_for_torch: Plan

    @cached_property
    def text(self) -> str:
        """The emitted step."""
        return emit(self.plan)

    def execute(self) -> Execution:
        """Return the step as it is meant, before its first step."""
        return self.ground.execute(self.plan, self.text)

    @cached_property
    def start(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """The state before the first step."""
        return self.execute().state()

    @cached_property
    def steps(self) -> Steps:
        """The steps as they are meant."""
        return run(self.execute(), self.plan.spec, TRAINING, overflows=False)

    @cached_property
    def is_degenerate(self) -> bool:
        """Whether the oracle says nothing of the spec that could be compared."""
        try:
            run_oracle(self.plan_for_torch.spec, Execution(self.plan_for_torch).shapes(), TRAINING)
        except DegenerateError:
            return True
        return False

    def try_without(self, write: Callable[[], str], function: Function) -> str:
        """Return what becomes of the steps with another text: an outcome, or nothing where they are the same."""
        is_met = self._is_met(function)  # a function that never runs changes nothing
        try:
            is_changed = is_met and self._is_changed(write())
        except RuntimeError:
            return "raised"
        if self.is_degenerate:
            return "degenerate"
        if is_changed:
            return "changed"
        return "" if is_met else "unmet"

    def _is_changed(self, text: str) -> bool:
        """Return whether another text gives other numbers; the first that differ are enough."""
        steps = take(self.ground.execute(self.plan, text), self.plan.spec, TRAINING, overflows=False)
        # The wrong step comes first: where it raises, there is nothing to compare.
        return any(find_difference([wrong], [self.steps[at]]) for at, wrong in enumerate(steps))

    def try_planted(self, awaiting: Awaiting) -> str:
        """Return what becomes of steps in which another update overflows, where one does not wait for its verdict."""
        text = emit_changed(awaiting.program)
        right, is_met = run_planted(self.execute(), self.plan, TRAINING, awaiting)
        try:
            wrong, _ = run_planted(self.ground.execute(self.plan, text), self.plan, TRAINING, awaiting)
        except RuntimeError:
            return "raised"
        if find_difference(wrong, right):
            return "planted"
        return "" if is_met else "unmet"

    def _is_met(self, function: Function) -> bool:
        """Return whether a function is one of those that the steps pick."""
        picked = self._picked
        return picked is None or any(fired == function.gated and is_of(turn, function) for turn, fired in picked)

    @cached_property
    def _picked(self) -> list[tuple[Sequence[str | None], object]] | None:
        """What fires in each of the steps; None where every step is the same."""
        names = self.execute().names
        clock, gates = names.get("clock"), names.get("gates")
        if gates is None:
            return None
        picked = []
        for turn in find_turns(self.plan.spec, TRAINING):
            clock.start(turn[0])
            picked.append((turn, gates.fire(*turn)))
            clock.finish()
        return picked


def undo_deferrals(seeds: Iterable[int], order: str = "listed", ground: Ground = TORCH) -> Undone:
    """Write every deferred update right behind its gradient."""
    found = Undone()
    for known in find_known(seeds, order, ground):
        for function, write, program, excuse in find_deferred(known.plan):
            found.tried += 1
            models = [model for part in write.parts for model in part.models]
            outcome = known.try_without(partial(emit_changed, program), function) or excuse
            outcome = outcome or ("" if _moves(known, models) else "still")
            if outcome:
                found.count(outcome)
            else:
                found.needless.append(f"seed {known.seed}: {write.op} in {function.name}")
        for awaiting in find_awaiting(known.plan):
            found.tried += 1
            models = [model for part in awaiting.write.parts for model in part.models]
            outcome = known.try_planted(awaiting) or ("" if _moves(known, models) else "still")
            if outcome:
                found.count(outcome)
            else:
                found.needless.append(f"seed {known.seed}: {awaiting.write.op} in {awaiting.function.name}")
    return found


def undo_retains(seeds: Iterable[int], order: str = "fewest", ground: Ground = TORCH) -> Undone:
    """Free the graph of every gradient that keeps it."""
    found = Undone()
    for known in find_known(seeds, order, ground):
        for function, gradient, program, excuse in find_kept(known.plan):
            found.tried += 1
            outcome = known.try_without(partial(emit_changed, program), function) or excuse
            if outcome:
                found.count(outcome)
            else:
                found.needless.append(f"seed {known.seed}: {gradient.op} in {function.name}")
    return found


def find_known(seeds: Iterable[int], order: str, ground: Ground) -> Iterator[Known]:
    """Yield the plans of random specs; a spec that is rejected has none."""
    for seed in seeds:
        try:
            plan, plan_for_torch = ground.plan(seed, order), ground.plan_for_torch(seed, order)
        except SpecError:
            continue
        yield Known(ground=ground, seed=seed, plan=plan, plan_for_torch=plan_for_torch)


def _moves(known: Known, models: list[str]) -> bool:
    """Return whether the models of an update move in every step."""
    states = [known.start, *(state for _, state in known.steps)]
    moved = [
        max(np.abs(after[model][name] - before[model][name]).max(initial=0) for name in before[model])
        for before, after in pairwise(states)
        for model in models
    ]
    return min(moved) > 1e-7


def measure(name: str, undo: Callable[[Iterable[int]], Undone], count: int) -> Undone:
    """Return what came of the first seeds; say every now and then how far it is."""
    total, begun = Undone(), time.monotonic()
    for start in range(0, count, BLOCK):
        done = min(start + BLOCK, count)
        total.add(undo(range(start, done)))
        left = (time.monotonic() - begun) / done * (count - done) / 60
        print(f"{name}: {done} specs, {left:.0f} min left; {total}", file=sys.stderr, flush=True)
    return total


def main() -> int:
    """Print the figures of the first seeds; return 1 where something was needless."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.necessity", description=__doc__)
    parser.add_argument("count", type=int, help="how many seeds, from 0")
    parser.add_argument("--only", choices=UNDO, help="deferrals or retains alone")
    parser.add_argument("--base", action="store_true", help="specs of the first parts of the language alone")
    options = parser.parse_args()
    ground = BASE if options.base else TORCH
    wanted = {name: partial(undo, ground=ground) for name, undo in UNDO.items() if options.only in (None, name)}
    return report(wanted, options.count)


def report(wanted: Mapping[str, Callable[[Iterable[int]], Undone]], count: int) -> int:
    """Print the figures of the first seeds; return 1 where something was needless."""
    found = {name: measure(name, undo, count) for name, undo in wanted.items()}
    names = [one.name for one in fields(Undone)]
    print(f"| | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for name, total in found.items():
        print(total.row(name), *total.needless, sep="\n")
    return int(any(total.needless for total in found.values()))


UNDO = {"deferrals": undo_deferrals, "retains": undo_retains}

if __name__ == "__main__":
    sys.exit(main())
