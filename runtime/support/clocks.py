"""Clocks: the steps of every mode, and which gated ops fire in one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MOST_KNOWN = 10_000
"""How many counts gates remember in all, of the states for which they know what fires."""


class Counter(Protocol):
    """What counts something in a step, and keeps it once the step is finished."""

    def keep(self) -> None:
        """Keep what was counted."""


class Clock:
    """The steps of every mode. A step counts when it is finished: one that fails leaves no trace."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}  # finished so far, by mode
        self.mode, self.step = "", 0  # of the step that runs, from 1
        self.pending: list[Counter] = []  # what counted something in the step that runs

    def start(self, mode: str) -> int:
        """Start a step of a mode, forgetting one that failed; return its number."""
        self.pending.clear()
        self.mode, self.step = mode, self.steps.get(mode, 0) + 1
        return self.step

    def finish(self) -> None:
        """Count the step that runs, and let everything that counted in it keep that."""
        self.steps[self.mode] = self.step
        for counter in self.pending:
            counter.keep()
        self.pending.clear()


@dataclass(frozen=True)
class Gate:
    """When an op fires: every so many steps, or every so many of the steps in which what it follows fired.

    On the clock ``writes`` a step counts when every group of ``follows`` has an op that fired. Steps are counted from
    1; ``start`` and ``until`` are inclusive. With a start, the first step that counts is due. On the clock ``averaged``
    an op fires from the first time on that another gate of it did. ``datasets`` are those on whose batches it fires,
    and counts; none are named: on all. On the clock ``epochs`` it fires at the last of so many steps; a gate that
    counts begins anew with each ``epoch``, and with ``flush`` fires at its end if it has counted anything. One with
    ``first`` or ``last`` is closed before the first and after the last step in which an op of ``counted`` took place.
    One of a later iteration counts with that of the first, ``counts_with``, which is asked before it.
    One with a ``draw`` is open in the steps whose number, drawn for that, is at least ``low`` and less than ``high``.
    """

    op: str
    clock: str = "steps"
    every: int = 1
    start: int | None = None
    until: int | None = None
    follows: tuple[tuple[str, ...], ...] = ()
    datasets: tuple[str, ...] = ()
    epoch: int | None = None
    flush: bool = False
    first: int | None = None
    last: int | None = None
    counted: tuple[str, ...] = ()
    counts_with: str = ""
    draw: str = ""
    low: float = 0.0
    high: float = 1.0


class Gates:
    """The gates of every mode, each after those it follows, with what was counted in the finished steps."""

    def __init__(self, clock: Clock, gates: Mapping[str, Sequence[Gate]], seed: int = 0) -> None:
        self.clock, self.gates, self.seed = clock, gates, seed
        bounded = (gate for listed in gates.values() for gate in listed if is_bounded(gate))
        self.bounded = frozenset(gate.op for gate in bounded)  # few: the others are not asked whether they are open
        # by mode and op, the groups of which one op has to fire: those with an op that has no gate always do
        self.awaited = {
            mode: {gate.op: find_awaited(gate, listed) for gate in listed} for mode, listed in gates.items()
        }
        self.periods = {mode: find_period(listed) for mode, listed in gates.items()}
        self.known: dict[tuple[object, ...], tuple[dict[str, int], tuple[str, ...]]] = {}  # by state, what was found
        self.counts = {mode: {gate.op: 0 for gate in listed} for mode, listed in gates.items()}
        self.applied = {mode: {gate.op: 0 for gate in listed if gate.counted} for mode, listed in gates.items()}
        self.taken: set[str] = set()  # ops that have fired since the start
        self.fired: dict[str, tuple[str, ...]] = {}  # in the last finished step, by mode
        self.found: tuple[dict[str, int], tuple[str, ...]] = {}, ()  # in the step that runs: counts, and what fires
        self.held: frozenset[str] = frozenset()  # ops that fire in the step that runs and leave everything as it is

    def fire(self, mode: str, dataset: str | None = None) -> tuple[str, ...]:
        """Return the gated ops that fire in the step that the clock has started, on a batch of a data set.

        Where that follows from a few counts alone, it is found once for each of their states.
        """
        counts, period = self.counts.get(mode, {}), self.periods.get(mode)
        if period is None:
            found = self.find(mode, dataset or "")
        else:
            state = (mode, self.clock.step % period, *counts.values())
            found = self.known.get(state)
            if found is None:
                found = self.find(mode, "")
                if len(self.known) * len(counts) < MOST_KNOWN:
                    self.known[state] = found
        self.found, self.held = (dict(found[0]), found[1]), frozenset()
        self.clock.pending.append(self)
        return found[1]

    def find(self, mode: str, dataset: str) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return what is counted once the step that runs is finished, and the gated ops that fire in it."""
        step, counts = self.clock.step, dict(self.counts.get(mode, {}))
        fired: list[str] = []
        for gate in self.gates.get(mode, ()):
            if gate.op in self.bounded and not self.is_within(gate, dataset, fired, counts):
                continue
            due = False
            if gate.clock == "writes":
                for group in self.awaited[mode][gate.op]:
                    if group.isdisjoint(fired):
                        break
                else:
                    counter, skipped = gate.counts_with or gate.op, 1 if gate.start or gate.first else 0
                    counts[counter] += 1
                    due = (counts[counter] - skipped) % gate.every == 0
                    if due and not skipped:
                        counts[counter] = 0  # so that a checkpoint fits another interval
            elif gate.clock == "averaged":
                due = gate.op in self.taken
            elif gate.clock == "steps":
                due = (step - (gate.start or gate.every)) % gate.every == 0
            else:
                due = ends_epoch(gate, step)
            if gate.epoch is not None and ends_epoch(gate, step):
                due = due or (gate.flush and counts[gate.op] % gate.every > 0)
                if gate.clock == "writes":
                    counts[gate.op] = 0
            if due:
                fired.append(gate.op)
        return counts, tuple(fired)

    def keep(self) -> None:
        """Keep what was counted in the step that is finished."""
        mode, (counts, fired) = self.clock.mode, self.found
        took_place = fired if not self.held else tuple(op for op in fired if op not in self.held)
        if self.held:
            self.take_back(mode, took_place)
        for op in self.applied.get(mode, ()):
            (gate,) = (each for each in self.gates[mode] if each.op == op)
            self.applied[mode][op] += has_fired(gate.counted, took_place, {*counts, *self.held})
        self.counts[mode], self.fired[mode] = counts, fired
        self.taken.update(took_place)

    def take_back(self, mode: str, took_place: Sequence[str]) -> None:
        """Do not count what follows ops that did not take place in the step that is finished."""
        counts, gates = self.found[0], self.gates.get(mode, ())
        together = {gate.counts_with or gate.op for gate in gates if gate.counts_with}
        for gate in gates:
            if gate.op in together or gate.counts_with:
                continue  # what iterations count is never held
            took_part = all(has_fired(group, took_place, {*counts, *self.held}) for group in gate.follows)
            if not took_part and not ends_epoch(gate, self.clock.step):
                counts[gate.op] = self.counts[mode][gate.op]

    def hold(self, ops: frozenset[str]) -> None:
        """Say which ops of the step that runs do not take place after all."""
        self.held = ops

    def is_within(self, gate: Gate, dataset: str, fired: Sequence[str], gated: Container[str]) -> bool:
        """Return whether the step that runs lies between a gate's start and end, on a batch of its data sets."""
        if gate.counted:
            applied = self.applied[self.clock.mode][gate.op]
            now = applied + has_fired(gate.counted, fired, gated)  # its last one may be what it admits
            if now < (gate.first or 0) or (gate.last is not None and applied >= gate.last):
                return False
        if (
            gate.draw
            and not gate.low <= draw_number(self.seed, self.clock.mode, self.clock.step, gate.draw) < gate.high
        ):
            return False
        is_timed = (gate.start or 0) <= self.clock.step <= (gate.until or self.clock.step)
        return is_timed and (not gate.datasets or dataset in gate.datasets)


def is_bounded(gate: Gate) -> bool:
    """Return whether there are steps in which a gate is closed, however its clock stands."""
    return bool(gate.counted or gate.draw or gate.start or gate.until or gate.datasets)


def find_period(gates: Sequence[Gate]) -> int | None:
    """Return after how many steps the same gates fire at the same counts; None where that depends on more."""
    if any(is_bounded(gate) or gate.epoch or gate.clock not in {"steps", "writes"} for gate in gates):
        return None
    return math.lcm(*(gate.every for gate in gates if gate.clock == "steps"))


def find_awaited(gate: Gate, gates: Sequence[Gate]) -> tuple[frozenset[str], ...]:
    """Return the groups a gate follows of which every op has a gate."""
    gated = {each.op for each in gates}
    return tuple(frozenset(group) for group in gate.follows if gated.issuperset(group))


def draw_number(seed: int, mode: str, step: int, name: str) -> float:
    """Return the number from 0 up to 1 that is drawn for a step of a mode, the same on every machine."""
    key = f"{seed}/{mode}/{step}/{name}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big") / 2**48


def has_fired(group: Sequence[str], fired: Sequence[str], gated: Container[str]) -> bool:
    """Return whether an op of a group fires: one that just did, or one without a gate."""
    return any(op in fired or op not in gated for op in group)


def ends_epoch(gate: Gate, step: int) -> bool:
    """Return whether a step is the last of an epoch for a gate that has to do with that."""
    return gate.epoch is not None and step % gate.epoch == 0
