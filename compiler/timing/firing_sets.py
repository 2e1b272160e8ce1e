"""Firing sets: every set of gated ops that fires together in some step, found by walking the joint clocks.

The walk is complete by construction:

- Which gates open in a step depends on the number of the step, the counts of the gates on the clock ``writes``, the
  data set of the batch, and, for gates that count writes that may be held, on what happened. The walk keeps the set of
  all counts that are possible before a step, and takes every turn from each of them: each data set, each way in
  which the undecided gates can be due (as soon as they can have counted enough), and each alternative that can be
  drawn. So a firing set is missed only if its step is never walked.
- Every step is walked, in order, from every count that has not been there before at such a step. The steps are cut
  into stretches at every start, after every end, where an undecided gate can first be due or over, and before and after
  the last step of every epoch. Within a stretch, what happens depends on the step only by its remainder (modulo the
  least common multiple of the intervals) and on the counts. Each count is taken on by itself, so one that has been
  possible at a step of the same remainder brings nothing new. In a stretch without an end it is left out.
- A stretch with an end is crossed for the counts at that end, too. Once those of an early step are all possible again,
  at a step of the same remainder, every later step has at least the counts of the one as many steps before, and only
  those that it has besides are taken on (:meth:`_Walk._grow`). They are possible again, since counts turn round: the
  same turn, taken often enough, brings each back.
- The same holds one level up for whole epochs between two starts or ends: an epoch depends on the remainder of its
  first step and on the possible counts before it.
- Remainders and counts are finite, so the walk ends, and each count is taken on once for each remainder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.program import Gate
from compiler.timing.bounds import Bounds
from compiler.timing.gates import (
    LONGEST_PERIOD,
    NO_COUNTS,
    counts_now,
    ends_epoch,
    find_breaks,
    find_draws,
    find_period,
    find_sharing,
    fire,
    is_due,
    merge_alike,
)

States: TypeAlias = frozenset[tuple[int, ...]]
"""All counts that are possible before a step: of each counting gate, in their order."""
Move: TypeAlias = Callable[[int, States], States]
"""What steps, from the given one on, make of the possible counts."""
NOTHING: frozenset[str] = frozenset()


class _EnoughError(Exception):
    """More sets were found than asked for."""


def enumerate_patterns(
    gates: Sequence[Gate], always: frozenset[str], undecided: frozenset[str] = NOTHING, most: float = math.inf
) -> tuple[frozenset[str], ...]:
    """Return every set of gated ops that fires in some step, in the order of first appearance.

    ``always`` are the ops that fire in every step. No clock determines when an ``undecided`` gate is due: it may be due
    or not in every step that counts for it. Where there are more than ``most`` sets, those met first are returned, one
    more than that. Raises ValueError with the period where it is longer than LONGEST_PERIOD.
    """
    return tuple(fired for _, fired in enumerate_datasets(gates, {"": always}, undecided, most))


def enumerate_datasets(
    gates: Sequence[Gate],
    always: Mapping[str, frozenset[str]],
    undecided: frozenset[str] = NOTHING,
    most: float = math.inf,
) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every set of gated ops that fires in some step on a batch of some data set, in any order of data sets.

    ``always``: by data set, the ops that fire in every step on a batch of it. Otherwise as
    :func:`enumerate_patterns`.
    """
    walk = _Walk.of(gates, always, undecided, most)
    period = find_period(walk.decided)
    if period > LONGEST_PERIOD:
        slow = ", ".join(gate.op for gate in walk.decided if gate.every > 1)
        bound = bound_sets(walk.gates) * len(always)
        made = f"up to {spell_large(bound)} functions would be made"
        raise ValueError(f"the clocks of {slow} only repeat after {spell_large(period)} steps; {made}")
    states = walk.start
    with suppress(_EnoughError):
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
    """Return whether a step that resumes with such counts meets a firing set that a run from the start never does.

    So it is said, too, where clocks that were in step have drifted apart so far that they hardly ever repeat.
    """
    walk = _Walk.of(gates, always, undecided, counts=counts)
    if find_period(walk.decided) > LONGEST_PERIOD:
        return True
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
    names = [walk.alike.get(gate.op, (gate.op,)) for gate in walk.counted]
    return tuple(
        {op: count for ops, count in zip(names, counts, strict=True) for op in ops} for counts in sorted(states)
    )


class _Walk(Struct, frozen=True, kw_only=True):
    """A walk over the steps, and what fired in them."""

    gates: Sequence[Gate]
    """One gate, the first, of each set that opens in the same steps."""
    decided: Sequence[Gate]
    """Those of them that are due by clocks and counts alone."""
    alike: Mapping[str, tuple[str, ...]]
    """By its op, the ops of a set that has several."""
    counted: tuple[Gate, ...]
    """The gates whose counts decide when they are due: of iterations that count together the first."""
    sharing: Mapping[str, tuple[Gate, ...]]
    """The gates that count with each of these, where there are some."""
    always: Mapping[str, frozenset[str]]
    """By data set of a batch, the ops that fire on all of it."""
    together: tuple[tuple[str, ...], ...]
    """The undecided gates, those together that are due together."""
    draws: tuple[Mapping[str, float], ...]
    """What can be drawn."""
    period: int
    """The least common multiple of the intervals of gates on the clock ``steps``."""
    epoch: int | None
    """How many steps an epoch has, where gates have to do with its end."""
    opens: Mapping[str, int]
    """The first step in which an undecided gate can be due."""
    closes: Mapping[str, int]
    """The first step in which an undecided gate can be over; from ``opens`` to there it is due."""
    most: float
    """How many sets are looked for; the walk ends with the next."""
    seen: dict[tuple[str, frozenset[str]], None] = {}

    @classmethod
    def of(
        cls,
        gates: Sequence[Gate],
        always: Mapping[str, frozenset[str]],
        undecided: Container[str],
        most: float = math.inf,
        counts: Mapping[str, int] = NO_COUNTS,
    ) -> _Walk:
        """Return a walk that has not begun; ``counts``: those that gates begin with, by default none."""
        merged, members = merge_alike(gates, always.values(), undecided, counts)
        decided = [gate for gate in merged if gate.op not in undecided]
        together: dict[Gate, list[str]] = {}  # undecided gates that count the same steps are due together
        for gate in gates:
            if gate.op in undecided:
                together.setdefault(replace(gate, op=gate.counts_with and gate.op), []).append(gate.op)
        drawn = find_draws(gates)
        bounds, unsure = Bounds.of(gates), [gate for gate in gates if gate.op in undecided]
        return cls(
            gates=merged,
            decided=decided,
            alike=members,
            counted=tuple(gate for gate in decided if gate.clock == "writes" and not gate.counts_with),
            sharing=find_sharing(decided),
            always=always,
            together=tuple(map(tuple, together.values())),
            draws=tuple(dict(zip(drawn, numbers, strict=True)) for numbers in product(*drawn.values())),
            period=math.lcm(*(gate.every for gate in gates if gate.clock == "steps")),
            epoch=next((gate.epoch for gate in gates if gate.epoch is not None), None),
            opens={gate.op: bounds.opens(gate) for gate in unsure},
            most=most,
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
        return frozenset({(0,) * len(self.counted)})

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
        known: dict[tuple[int, tuple[int, ...]], States] = {}
        ending = [ends_epoch(gate, begin) for gate in self.counted]  # the last step of an epoch is a stretch

        def take(step: int, states: States) -> States:
            """Take a step from all possible counts."""
            after: set[tuple[int, ...]] = set()
            for counts in sorted(states):
                # What of the counts decides what fires: all of one where iterations count on from it.
                deciding = (
                    count if gate.op in self.sharing else 2 * is_due(gate, count) + (count > 0)
                    for gate, count in zip(self.counted, counts, strict=True)
                )
                key = step % self.period, tuple(deciding)
                if key not in known:
                    known[key] = self._take(step, counts)
                for more in known[key]:
                    each = zip(self.counted, counts, more, ending, strict=True)
                    after.add(tuple(0 if ends else (count + new) % gate.every for gate, count, new, ends in each))
            return frozenset(after)

        return self._repeat(None if end is None else end - begin, 1, begin, states, take)

    def _repeat(self, count: int | None, length: int, begin: int, states: States, move: Move) -> States:
        """Make as many moves of a length as asked for, each from every count only once.

        ``count`` None: as long as they bring something new, which leaves nothing.
        """
        if count is None:
            met: dict[int, set[tuple[int, ...]]] = {}
            while fresh := states - met.setdefault(begin % self.period, set()):
                met[begin % self.period] |= fresh
                states, begin = move(begin, fresh), begin + length
            return frozenset()
        trail = [states]
        while len(trail) <= count:
            made = len(trail) - 1
            # Counts of another run may be too large at first; after a move they are such as return.
            if made > 1 and (made - 1) * length % self.period == 0 and trail[1] <= trail[made]:
                return self._grow(count, length, begin, trail, move)
            trail.append(move(begin + made * length, trail[made]))
        return trail[count]

    def _grow(self, count: int, length: int, begin: int, trail: Sequence[States], move: Move) -> States:
        """Make moves up to a number of them, where the counts after the last have all that there were after the first.

        From there on they only grow from round to round, and only what is new in a round is taken on.
        """
        made, phases = len(trail) - 1, list(map(set, trail[1:-1]))
        fresh: States = trail[made] - trail[1]
        while fresh:
            phases[(made - 1) % len(phases)] |= fresh
            if made == count:
                break
            fresh = move(begin + made * length, fresh) - phases[made % len(phases)]
            made += 1
        return frozenset(phases[(count - 1) % len(phases)])

    def _take(self, step: int, before: tuple[int, ...]) -> States:
        """Take a step in every turn from some counts; return what each can add to them, and note what fired."""
        counts = {gate.op: count for gate, count in zip(self.counted, before, strict=True)}
        added: set[tuple[int, ...]] = set()
        for dataset, free, due, draws in self._find_turns(step):
            fired = fire(self.gates, step, counts, free, dataset, due, draws)
            self.seen.setdefault((dataset, fired.union(*map(self.alike.__getitem__, fired & self.alike.keys()))))
            if len(self.seen) > self.most:
                raise _EnoughError
            now = fired | free
            shared = ((gate, *self.sharing.get(gate.op, ())) for gate in self.counted)
            added.add(tuple(sum(counts_now(gate, step, now, dataset) for gate in gates) for gates in shared))
        return frozenset(added)

    def _find_turns(self, step: int) -> Iterator[tuple[str, frozenset[str], Mapping[str, bool], Mapping[str, float]]]:
        """Yield what a step can be: a data set, what fires on all of it, which undecided gates are due, and draws."""
        opens, closes = self.opens, self.closes
        options: list[list[bool]] = []
        for op, *_ in self.together:
            can_be, need_not = step >= opens[op], step < opens[op] or step >= closes.get(op, 1)
            options.append([True] * can_be + [False] * need_not)
        for dataset, free in self.always.items():
            for chosen in product(*options):  # there may be more than there is time for
                due = {op: is_due for ops, is_due in zip(self.together, chosen, strict=True) for op in ops}
                for draws in self.draws:
                    yield dataset, free, due, draws


def bound_sets(gates: Sequence[Gate]) -> int:
    """Return how many sets of gates can be open together at most: what only follows is open with what it follows."""
    plain, clocks = Gate(op="", clock="writes"), set[Gate]()
    for gate in gates:
        clock = replace(gate, op="", follows=())
        if not gate.draw and clock != plain:
            clocks.add(clock if gate.clock == "steps" else gate)
    return 2 ** len(clocks) * math.prod(map(len, find_draws(gates).values()))


def spell_large(number: int) -> str:
    """Return a number with commas between thousands; of an enormous one, its magnitude."""
    return f"{number:,}" if number < 10**30 else f"about 10^{round(math.log10(number))}"


def _cut(begin: int, end: int | None, cuts: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Yield the stretches between two steps (the last without an end where there is none), cut at some others."""
    inner = sorted({cut for cut in cuts if cut > begin and (end is None or cut < end)})
    if end is None or begin < end:
        yield from zip([begin, *inner], [*inner, end], strict=True)
