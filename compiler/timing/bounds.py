"""How soon gates can open and close that no clock determines.

What is skipped makes counts smaller, never larger: in the first ``n`` steps a gate fires at most as often as if all it
counts took place as early as it can. So an average that starts with update 100 has no function together with what ends
with step 50.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

from compiler.ir.program import Gate

FOREVER = 2**62
"""A number of steps that no run takes."""


class Bounds(Struct, frozen=True):
    """How often the gates of a mode can fire in its first steps, at most."""

    gates: dict[str, Gate]
    known: dict[tuple[str, int], int] = {}

    @classmethod
    def of(cls, gates: Sequence[Gate]) -> Bounds:
        """Return the bounds of some gates."""
        return cls({gate.op: gate for gate in gates})

    def opens(self, gate: Gate) -> int:
        """Return the first step in which a gate can open."""
        return bisect_left(range(FOREVER), 1, key=lambda steps: self.fire(gate.op, steps))

    def closes(self, gate: Gate) -> int:
        """Return the first step in which a gate with a ``last`` can be closed for good."""
        last = gate.last or 0
        return 1 + bisect_left(range(FOREVER), last, key=lambda steps: self.fire_any(gate.counted, steps))

    def fire_any(self, ops: Iterable[str], steps: int) -> int:
        """Return in how many of the first steps one of some ops can fire."""
        return min(steps, sum(self.fire(op, steps) for op in ops))

    def count(self, gate: Gate, steps: int) -> int:
        """Return how many of the first steps can count for a gate on the clock ``writes``."""
        last = steps if gate.until is None else min(steps, gate.until)
        most = max(0, last - (gate.start or 1) + 1)
        return min((most, *(self.fire_any(group, steps) for group in gate.follows)))

    def fire(self, op: str, steps: int) -> int:
        """Return in how many of the first steps an op can fire; one without a gate in all of them."""
        if op not in self.gates:
            return steps
        if (op, steps) not in self.known:
            self.known[op, steps] = self._fire(self.gates[op], steps)
        return self.known[op, steps]

    def _fire(self, gate: Gate, steps: int) -> int:
        if gate.first is not None and self.fire_any(gate.counted, steps) < gate.first:
            return 0
        if gate.clock == "steps":
            last = steps if gate.until is None else min(steps, gate.until)
            return max(0, (last - (gate.start or gate.every)) // gate.every + 1)
        ends = 0 if gate.epoch is None else steps // gate.epoch
        if gate.clock == "epochs":
            return ends
        most = self.count(gate, steps)
        if self.is_shared(gate):  # another iteration may have counted
            return most
        most = (most + gate.every - 1 if gate.has_start else most) // gate.every
        if gate.epoch is None:
            return most
        # A count that begins anew with each epoch: one that is flushed or due at first fires once more in each.
        is_rounded_up = gate.flush or gate.has_start
        return most + ends if is_rounded_up else min(most, (ends + 1) * self.fire_in_epoch(gate.op, gate.epoch))

    def is_shared(self, gate: Gate) -> bool:
        """Return whether a gate counts with others."""
        return bool(gate.counts_with) or any(each.counts_with == gate.op for each in self.gates.values())

    def fire_in_epoch(self, op: str, epoch: int) -> int:
        """Return in how many steps of any epoch of so many an op can fire."""
        if op not in self.gates:
            return epoch
        gate = self.gates[op]
        if gate.clock == "epochs":
            return 1
        most = epoch
        for group in gate.follows:
            most = min(most, sum(self.fire_in_epoch(each, epoch) for each in group))
        is_rounded_up = gate.flush or gate.has_start or gate.epoch is None
        if self.is_shared(gate):
            return most
        return (most + gate.every - 1 if is_rounded_up else most) // gate.every
