"""Which ops their clocks admit in a step: steps counted from 1, writes of a source counted one by one."""

from __future__ import annotations

from graphspec.ops import CopyOp, EmaOp, Op
from tests.oracle.meaning import WRITERS, Meaning


class Clocks:
    """The steps and counts of every mode."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.averaged: set[str] = set()
        """Averages that have fired."""

    def admit(self, meaning: Meaning) -> set[str]:
        """Count a step of a mode, and return the ops that may fire in it."""
        self.steps[meaning.mode] = step = self.steps.get(meaning.mode, 0) + 1
        admitted: set[str] = set()
        for name in meaning.gated():
            if _is_inside(meaning.ops[name], step) and self._is_due(name, meaning, step, admitted):
                admitted.add(name)
        return admitted

    def _is_due(self, name: str, meaning: Meaning, step: int, admitted: set[str]) -> bool:
        op = meaning.ops[name]
        if isinstance(op.every, str) and op.every not in admitted:
            return False
        every = op.every if isinstance(op.every, int) else 1
        if not isinstance(op, EmaOp | CopyOp):
            return (step - (_first(op) or every)) % every == 0
        source = op.ema if isinstance(op, EmaOp) else op.copy_
        writers = (n for n in meaning.past[name] & admitted if isinstance(meaning.ops[n], WRITERS))
        if not any(f"{source}.params" in meaning.writes(other) for other in writers):
            return False
        key = (meaning.mode, name)
        self.counts[key] = self.counts.get(key, 0) + 1
        return (self.counts[key] - (1 if op.start else 0)) % every == 0

    def note(self, meaning: Meaning, firing: list[str]) -> None:
        """Remember which averages there are."""
        self.averaged |= {name for name in firing if isinstance(meaning.ops[name], EmaOp)}


def _first(op: Op) -> int:
    return int(op.start.count) if op.start is not None else 0


def _is_inside(op: Op, step: int) -> bool:
    """Return whether a step is between start and until."""
    return _first(op) <= step <= (int(op.until.count) if op.until is not None else step)


def decay_of(op: EmaOp) -> float:
    """Return the share of the old average that one firing keeps; ``every: k`` compounds where it is asked to."""
    interval = op.every if isinstance(op.every, int) else 1
    if op.half_life is not None:
        single = 0.5 ** (1.0 / op.half_life.count)
    else:
        single = op.decay if op.decay is not None else 1.0 - op.tau
    return single**interval if op.correction == "compound" else single
