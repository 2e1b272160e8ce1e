"""Firing sets: every set of gated ops that fires together in some step, found by walking the joint clocks.

The walk is complete by construction:

- Which gates open in a step depends on the number of the step, the counts of the gates on the clock ``writes``, the
  data set of the batch, and, for gates that count writes that may be held, on what happened. The walk keeps the set of
  all counts that are possible before a step, and takes every turn from each of them: each data set, each way in
  which the undecided gates can be due (as soon as they can have counted enough), and each alternative that can be
  drawn. So a firing set is missed only if its step is never walked.
- Every step is walked, in order, unless the walk is in a round that it has made before. The steps are cut into
  stretches at every start, after every end, where an undecided gate can first be due or over, and before and after the
  last step of every epoch. Within a stretch, what happens depends on the step only by its remainder (modulo the least
  common multiple of the intervals) and on the possible counts. When both come back, everything from there on repeats
  until the stretch ends, so the rest of it brings nothing new, and the counts at its end are those at the same place of
  an earlier round.
- The same holds one level up for whole epochs between two starts or ends: an epoch depends on the remainder of its
  first step and on the possible counts before it.
- Remainders and counts are finite, so both levels come back to where they were, and the walk ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.program import Gate
from compiler.timing.bounds import Bounds
from compiler.timing.gates import (
    LONGEST_PERIOD,
    count_on,
    find_breaks,
    find_draws,
    find_period,
    find_sharing,
    fire,
)

States: TypeAlias = frozenset[tuple[int, ...]]
"""All counts that are possible before a step: of each counting gate, in their order."""
NOTHING: frozenset[str] = frozenset()


def enumerate_patterns(
    gates: Sequence[Gate], always: frozenset[str], undecided: frozenset[str] = NOTHING
) -> tuple[frozenset[str], ...]:
    """Return every set of gated ops that fires in some step, in the order of first appearance.

    ``always`` are the ops that fire in every step. No clock determines when an ``undecided`` gate is due: it may be due
    or not in every step that counts for it. Raises ValueError with the period where it is longer than LONGEST_PERIOD.
    """
    return tuple(fired for _, fired in enumerate_datasets(gates, {"": always}, undecided))


def enumerate_datasets(
    gates: Sequence[Gate], always: Mapping[str, frozenset[str]], undecided: frozenset[str] = NOTHING
) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every set of gated ops that fires in some step on a batch of some data set, in any order of data sets.

    ``always``: by data set, the ops that fire in every step on a batch of it. Otherwise as
    :func:`enumerate_patterns`.
    """
    walk = _Walk.of(gates, always, undecided)
    states = walk.start
    for begin, end in _cut(1, None, walk.breaks):
        states = walk.cross(begin, end, states)
    return tuple(walk.seen)


def lacks_functions(
    gates: Sequence[Gate],
    always: Mapping[str, frozenset[str]],
    undecided: frozenset[str],
    steps: int,
    counts: Mapping[str, int],
) -> bool:
    """Return whether a step that resumes with such counts meets a firing set that a run from the start never does."""
    walk = _Walk.of(gates, always, undecided)
    states: States = frozenset({tuple(counts[gate.op] for gate in walk.counted)})
    for begin, end in _cut(steps + 1, None, walk.breaks):
        states = walk.cross(begin, end, states)
    return not walk.seen.keys() <= set(enumerate_datasets(gates, always, undecided))


def find_counts(
    gates: Sequence[Gate], always: Mapping[str, frozenset[str]], undecided: frozenset[str], steps: int
) -> tuple[Mapping[str, int], ...]:
    """Return every set of counts that is possible after some steps, of the gates that count and are decided."""
    walk = _Walk.of(gates, always, undecided)
    states = walk.start
    for begin, end in _cut(1, steps + 1, walk.breaks):
        states = walk.cross(begin, end, states)
    names = [gate.op for gate in walk.counted]
    return tuple(dict(zip(names, counts, strict=True)) for counts in sorted(states))


class _Walk(Struct, frozen=True, kw_only=True):
    """A walk over the steps, and what fired in them."""

    gates: Sequence[Gate]
    counted: tuple[Gate, ...]
    """The gates whose counts decide when they are due: of iterations that count together the first."""
    sharing: Mapping[str, tuple[Gate, ...]]
    """The gates that count with each of these, where there are some."""
    turns: tuple[tuple[str, frozenset[str], Mapping[str, bool], Mapping[str, float]], ...]
    """What a step can be: the data set of its batch, the ops that fire on all of it, which undecided gates are due, and
    what is drawn."""
    period: int
    """The least common multiple of the intervals of gates on the clock ``steps``."""
    epoch: int | None
    """How many steps an epoch has, where gates have to do with its end."""
    opens: Mapping[str, int]
    """The first step in which an undecided gate can be due."""
    closes: Mapping[str, int]
    """The first step in which an undecided gate can be over; from ``opens`` to there it is due."""
    seen: dict[tuple[str, frozenset[str]], None] = {}

    @classmethod
    def of(cls, gates: Sequence[Gate], always: Mapping[str, frozenset[str]], undecided: Container[str]) -> _Walk:
        """Return a walk that has not begun; raise ValueError where the clocks take too long to repeat."""
        decided = [gate for gate in gates if gate.op not in undecided]
        period = find_period(decided)
        if period > LONGEST_PERIOD:
            slow, most = ", ".join(gate.op for gate in decided if gate.every > 1), bound_sets(gates) * len(always)
            made = f"up to {most:,} functions would be made"
            raise ValueError(f"the clocks of {slow} only repeat after {period:,} steps; {made}")
        alike: dict[Gate, list[str]] = {}  # undecided gates that count the same steps are due together
        for gate in gates:
            if gate.op in undecided:
                alike.setdefault(replace(gate, op=gate.counts_with and gate.op), []).append(gate.op)
        choices = (zip(alike.values(), chosen, strict=True) for chosen in product((True, False), repeat=len(alike)))
        ways = [{op: is_due for ops, is_due in choice for op in ops} for choice in choices]
        drawn = find_draws(gates)
        draws = [dict(zip(drawn, numbers, strict=True)) for numbers in product(*drawn.values())]
        bounds, unsure = Bounds.of(gates), [gate for gate in gates if gate.op in undecided]
        return cls(
            gates=gates,
            counted=tuple(gate for gate in decided if gate.clock == "writes" and not gate.counts_with),
            sharing=find_sharing(decided),
            turns=tuple((*place, due, each) for place in always.items() for due in ways for each in draws),
            period=math.lcm(*(gate.every for gate in gates if gate.clock == "steps")),
            epoch=next((gate.epoch for gate in gates if gate.epoch is not None), None),
            opens={gate.op: bounds.opens(gate) for gate in unsure},
            closes={
                gate.op: bounds.closes(gate) for gate in unsure if gate.last and gate.first is None and gate.every == 1
            },
        )

    @property
    def breaks(self) -> list[int]:
        """Return the steps with which stretches begin."""
        return sorted({*find_breaks(self.gates), *self.opens.values(), *self.closes.values()})

    @property
    def start(self) -> States:
        """Return the counts before the first step."""
        return frozenset({tuple(0 for _ in self.counted)})

    def cross(self, begin: int, end: int | None, states: States) -> States:
        """Walk from a step up to another (exclusive; None: forever) without starts and ends between them."""
        if self.epoch is None:
            return self._cross_stretch(begin, end, states)
        first = -(-(begin - 1) // self.epoch) * self.epoch + 1  # the first step of the first whole epoch
        if end is not None and first + self.epoch > end:
            cuts = [step for last in (first - 1, first - 1 + self.epoch) for step in (last, last + 1)]
            return self._cross_stretches(begin, end, cuts, states)
        states = self._cross_stretches(begin, first, [first - 1], states)
        count = None if end is None else (end - first) // self.epoch
        states = self._repeat(count, self.epoch, first, states, self._cross_epoch)
        return states if count is None or end is None else self._cross_stretch(first + count * self.epoch, end, states)

    def _cross_epoch(self, begin: int, states: States) -> States:
        """Walk through a whole epoch."""
        assert self.epoch is not None
        end = begin + self.epoch
        return self._cross_stretches(begin, end, [end - 1], states)

    def _cross_stretches(self, begin: int, end: int, cuts: Sequence[int], states: States) -> States:
        """Walk from a step up to another, cut at some steps."""
        for first, last in _cut(begin, end, cuts):
            states = self._cross_stretch(first, last, states)
        return states

    def _cross_stretch(self, begin: int, end: int | None, states: States) -> States:
        """Walk through steps that differ in nothing but their remainder."""
        return self._repeat(None if end is None else end - begin, 1, begin, states, self._take)

    def _repeat(
        self, count: int | None, length: int, begin: int, states: States, move: Callable[[int, States], States]
    ) -> States:
        """Make as many moves of a length as asked for (None: forever), and each round of them only once."""
        met: dict[tuple[int, States], int] = {}
        trail: list[States] = []
        while count is None or len(trail) < count:
            key = (begin + len(trail) * length) % self.period, states
            if key in met:
                first = met[key]
                return states if count is None else trail[first + (count - first) % (len(trail) - first)]
            met[key] = len(trail)
            trail.append(states)
            states = move(begin + (len(trail) - 1) * length, states)
        return states

    def _take(self, step: int, states: States) -> States:
        """Take a step in every turn from all possible counts; return those after it, and note what fired."""
        turns = [turn for turn in self.turns if self._is_possible(turn[2], step)]
        if not self.counted:  # intervals may be long
            self.seen.update(
                {
                    (dataset, fire(self.gates, step, {}, free, dataset, due, draws)): None
                    for dataset, free, due, draws in turns
                }
            )
            return states
        after: set[tuple[int, ...]] = set()
        for before in sorted(states):
            counts = {gate.op: count for gate, count in zip(self.counted, before, strict=True)}
            for dataset, free, due, draws in turns:
                fired = fire(self.gates, step, counts, free, dataset, due, draws)
                self.seen.setdefault((dataset, fired))
                now = fired | free
                after.add(
                    tuple(
                        count_on(gate, counts[gate.op], step, now, dataset, self.sharing.get(gate.op, ()))
                        for gate in self.counted
                    )
                )
        return frozenset(after)

    def _is_possible(self, due: Mapping[str, bool], step: int) -> bool:
        """Return whether some undecided gates can be due in a step, and the others not."""
        return all(
            step >= self.opens[op] if is_due else step < self.opens[op] or step >= self.closes.get(op, 1)
            for op, is_due in due.items()
        )


def bound_sets(gates: Sequence[Gate]) -> int:
    """Return how many sets of gates can be open together at most: what only follows is open with what it follows."""
    timed = (gate for gate in gates if not gate.draw)
    free = {replace(gate, op="", follows=()) if gate.clock == "steps" else gate for gate in timed}
    plain = Gate(op="", clock="writes")
    clocks = [gate for gate in free if replace(gate, op="", follows=()) != plain]
    return 2 ** len(clocks) * math.prod(map(len, find_draws(gates).values()))


def _cut(begin: int, end: int | None, cuts: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Yield the stretches between two steps (the last without an end where there is none), cut at some others."""
    inner = sorted({cut for cut in cuts if cut > begin and (end is None or cut < end)})
    if end is None or begin < end:
        yield from zip([begin, *inner], [*inner, end], strict=True)
