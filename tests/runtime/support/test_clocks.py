"""The clocks of emitted code against the compiler's, and both against the definition written out naively."""

from __future__ import annotations

import random

import pytest

from compiler.ir.program import Gate
from compiler.timing.gates import counts_now, fire
from runtime.support import clocks


def run_emitted(gates: tuple[Gate, ...], steps: int) -> list[tuple[str, ...]]:
    """Return what fires step by step in emitted code."""
    made = [clocks.Gate(g.op, g.clock, g.every, g.start, g.until, g.follows) for g in gates]
    clock = clocks.Clock()
    runner = clocks.Gates(clock, {"train": made})
    return [make_step(clock, runner) for _ in range(steps)]


def make_step(clock: clocks.Clock, gates: clocks.Gates, mode: str = "train") -> tuple[str, ...]:
    """Return what fires in the next step, which comes to its end."""
    clock.start(mode)
    fired = gates.fire(mode)
    clock.finish()
    return fired


def run_compiled(gates: tuple[Gate, ...], steps: int, always: frozenset[str]) -> list[frozenset[str]]:
    """Return what fires step by step in the compiler's enumeration."""
    counts, seen = {gate.op: 0 for gate in gates}, []
    for step in range(1, steps + 1):
        fired = fire(gates, step, counts, always)
        seen.append(fired)
        for gate in gates:
            if gate.clock == "writes":
                counts[gate.op] += counts_now(gate, step, fired | always)
    return seen


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (Gate(op="a", every=3), [3, 6, 9]),
        (Gate(op="a", every=2, start=3), [3, 5, 7, 9]),
        (Gate(op="a", start=4), [4, 5, 6, 7, 8, 9, 10]),
        (Gate(op="a", until=2), [1, 2]),
        (Gate(op="a", every=4, start=2, until=6), [2, 6]),
    ],
)
def test_steps_are_counted_from_one_and_bounds_are_inclusive(gate: Gate, expected: list[int]) -> None:
    assert [step for step, fired in enumerate(run_emitted((gate,), 10), start=1) if fired] == expected


def test_an_average_counts_the_steps_in_which_its_source_was_written() -> None:
    gates = (
        Gate(op="step_pi", every=2),
        Gate(op="average", clock="writes", every=3, follows=(("step_pi",),)),
    )
    fired = run_emitted(gates, 13)
    assert [step for step, ops in enumerate(fired, start=1) if "average" in ops] == [6, 12]


def test_a_group_without_any_op_never_counts() -> None:
    gates = (Gate(op="average", clock="writes", follows=((),)),)
    assert run_emitted(gates, 5) == [()] * 5


@pytest.mark.parametrize("seed", range(40))
def test_emitted_clocks_decide_as_the_compiler_enumerates(seed: int) -> None:
    rng = random.Random(seed)
    gates = [Gate(op="u", every=rng.randint(1, 4), start=rng.choice([None, 3]), until=rng.choice([None, 20]))]
    for name in ("v", "w"):
        follows = (rng.choice([("u",), ("free",), ("u", "free")]), ("u", "v") if name == "w" else ("free",))
        gates.append(
            Gate(op=name, clock="writes", every=rng.randint(1, 3), start=rng.choice([None, 4]), follows=follows)
        )
    emitted = run_emitted(tuple(gates), 40)
    compiled = run_compiled(tuple(gates), 40, frozenset({"free"}))
    assert [frozenset(fired) for fired in emitted] == compiled
