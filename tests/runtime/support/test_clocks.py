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


@pytest.mark.parametrize("seed", range(40))
def test_what_fires_is_the_same_whether_it_is_remembered_or_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that fail, ops that do not take place, and counts that a checkpoint replaces come in between."""
    rng = random.Random(seed)
    gates = [
        clocks.Gate("u", every=rng.randint(1, 4)),
        clocks.Gate("v", clock="writes", every=rng.randint(1, 5), follows=(("u",),)),
        clocks.Gate("w", clock="writes", every=rng.randint(1, 3), follows=(("v", "u"),)),
    ]
    remembering, forgetful = (clocks.Gates(clocks.Clock(), {"train": gates}) for _ in range(2))
    for _ in range(200):
        held = frozenset(op for op in "uvw" if rng.random() < 0.05)
        is_finished, is_restored, count = rng.random() < 0.9, rng.random() < 0.03, rng.randint(0, 4)
        seen = []
        for each, most in ((remembering, 100), (forgetful, 0)):
            monkeypatch.setattr(clocks, "MOST_KNOWN", most)
            each.clock.start("train")
            fired = each.fire("train")
            each.hold(held.intersection(fired))
            if is_finished:
                each.clock.finish()
            if is_restored:
                each.counts["train"]["v"] = count
            seen.append((fired, dict(each.counts["train"]), set(each.taken)))
        assert seen[0] == seen[1]
    assert len(remembering.known) > 1
    assert not forgetful.known


def test_gates_of_many_states_remember_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "MOST_KNOWN", 40)
    gates = tuple(Gate(op=f"u{every}", clock="writes", every=every, follows=(("free",),)) for every in (2, 3, 5, 7))
    clock = clocks.Clock()
    listed = [clocks.Gate(gate.op, gate.clock, gate.every, follows=gate.follows) for gate in gates]
    running = clocks.Gates(clock, {"train": listed})
    fired = [make_step(clock, running) for _ in range(420)]
    assert fired == [tuple(gate.op for gate in gates if step % gate.every == 0) for step in range(1, 421)]
    assert len(running.known) == 10


@pytest.mark.parametrize(
    ("gate", "period"),
    [
        (clocks.Gate("a", every=6), 6),
        (clocks.Gate("a", clock="writes", every=6), 1),
        (clocks.Gate("a", every=6, start=2), None),
        (clocks.Gate("a", until=2), None),
        (clocks.Gate("a", datasets=("x",)), None),
        (clocks.Gate("a", draw="a", high=0.5), None),
        (clocks.Gate("a", counted=("b",), first=2), None),
        (clocks.Gate("a", clock="epochs", epoch=6), None),
        (clocks.Gate("a", clock="writes", every=6, epoch=6, flush=True), None),
        (clocks.Gate("a", clock="averaged"), None),
    ],
)
def test_only_gates_that_need_nothing_but_counts_are_remembered(gate: clocks.Gate, period: int | None) -> None:
    assert clocks.find_period([clocks.Gate("c"), gate]) == period
