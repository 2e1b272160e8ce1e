"""Clocks: which gated ops fire in a step."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """When an op fires: every so many steps, or every so many of the steps in which what it follows fired.

    On the clock ``writes`` a step counts when every group of ``follows`` has an op that fired. Steps are counted from
    1; ``start`` and ``until`` are inclusive. With a start, the first step that counts is due.
    """

    op: str
    clock: str = "steps"
    every: int = 1
    start: int | None = None
    until: int | None = None
    follows: tuple[tuple[str, ...], ...] = ()


class Gates:
    """The gates of every mode, each after those it follows, with what was counted so far."""

    def __init__(self, gates: Mapping[str, Sequence[Gate]]) -> None:
        self.gates = gates
        self.steps = dict.fromkeys(gates, 0)
        self.counts = {mode: {gate.op: 0 for gate in listed} for mode, listed in gates.items()}

    def fire(self, mode: str) -> tuple[str, ...]:
        """Count one step of a mode; return the gated ops that fire in it."""
        counts = self.counts.get(mode, {})
        step = self.steps[mode] = self.steps.get(mode, 0) + 1
        fired = []
        for gate in self.gates.get(mode, ()):
            if (gate.start or 0) <= step <= (gate.until or step):
                if gate.clock == "steps":
                    due = (step - (gate.start or gate.every)) % gate.every == 0
                elif self.follows(gate, fired, counts):
                    counts[gate.op] += 1
                    due = (counts[gate.op] - (1 if gate.start else 0)) % gate.every == 0
                else:
                    due = False
                if due:
                    fired.append(gate.op)
        return tuple(fired)

    def follows(self, gate: Gate, fired: Sequence[str], gated: Container[str]) -> bool:
        """Return whether every group a gate follows has an op that fires: one that just did, or one without a gate."""
        return all(any(op in fired or op not in gated for op in group) for group in gate.follows)
