"""When ops fire: gates, and the sets of gated ops that can fire together."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from compiler.graph import sort
from compiler.program import Gate

BY_COUNT: Mapping[str, bool] = {}
LONGEST_PERIOD = 100_000
"""Steps after which a pattern of gates must repeat; beyond, a spec has clocks that nobody meant."""


def sort_gates(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Return the gates so that each comes after those it follows."""
    by_op = {gate.op: gate for gate in gates}
    followed = {op: [name for group in gate.follows for name in group if name in by_op] for op, gate in by_op.items()}
    return tuple(by_op[op] for op in sort(followed))


def fire(
    gates: Sequence[Gate],
    step: int,
    counts: Mapping[str, int],
    always: frozenset[str],
    dataset: str = "",
    due: Mapping[str, bool] = BY_COUNT,
) -> frozenset[str]:
    """Return the gated ops that fire in a step (1-based) on a batch of a data set.

    ``counts`` holds, for gates on the clock ``writes``, how many steps counted before this one; ``always`` are the ops
    that fire in every step. ``due`` says of some gates whether they are due where the step counts for them.
    """
    fired: set[str] = set()
    for gate in gates:
        if gate.clock == "steps":
            opens = _is_due(gate, step) and _is_within(gate, step, dataset)
        elif gate.clock == "epochs":
            opens = ends_epoch(gate, step)
        else:
            now, count = counts_now(gate, step, always.union(fired), dataset), counts.get(gate.op, 0)
            opens = now and due.get(gate.op, _is_multiple(gate, count))
            opens = opens or (gate.flush and ends_epoch(gate, step) and now + count > 0)
        if opens:
            fired.add(gate.op)
    return frozenset(fired)


def counts_now(gate: Gate, step: int, fired: frozenset[str], dataset: str = "") -> bool:
    """Return whether a step counts for a gate on the clock ``writes``: every group it follows has an op that fired."""
    return _is_within(gate, step, dataset) and all(fired.intersection(group) for group in gate.follows)


def ends_epoch(gate: Gate, step: int) -> bool:
    """Return whether a step is the last of an epoch for a gate that has to do with that."""
    return gate.epoch is not None and step % gate.epoch == 0


def count_on(gate: Gate, count: int, step: int, fired: frozenset[str], dataset: str = "") -> int:
    """Return what a gate on the clock ``writes`` has counted after a step, up to what it fires at."""
    return 0 if ends_epoch(gate, step) else (count + counts_now(gate, step, fired, dataset)) % gate.every


def enumerate_patterns(
    gates: Sequence[Gate], always: frozenset[str], undecided: frozenset[str] = frozenset()
) -> tuple[frozenset[str], ...]:
    """Return every set of gated ops that fires in some step, in the order of first appearance.

    Between two starts or ends the pattern is periodic, so each such stretch is walked once and whole periods of it are
    skipped. Of gates that are ``undecided`` no clock tells when they are due: wherever a step counts for one it may be
    due or not. Raises ValueError with the period where it is longer than LONGEST_PERIOD.
    """
    if any(gate.epoch is not None for gate in gates):
        return tuple(dict.fromkeys(fired for _, fired in enumerate_datasets(gates, {"": always}, undecided)))
    decided, choices = _split(gates, undecided)
    period = find_period(decided)
    if period > LONGEST_PERIOD:
        raise ValueError(f"the clocks of {', '.join(gate.op for gate in gates)} only repeat after {period} steps")
    seen: dict[frozenset[str], None] = {}
    counts = {gate.op: 0 for gate in decided if gate.clock == "writes"}
    for step in _walk(gates, period):
        seen.update(dict.fromkeys(fire(gates, step, counts, always, due=due) for due in choices))
        fired = fire(gates, step, counts, always)
        for gate in decided:
            if gate.clock == "writes":
                counts[gate.op] = count_on(gate, counts[gate.op], step, fired | always)
    return tuple(seen)


def _split(gates: Sequence[Gate], undecided: Container[str]) -> tuple[list[Gate], tuple[Mapping[str, bool], ...]]:
    """Return the gates whose clocks tell when they are due, and every way in which the others can be.

    Those that count the same steps are due together.
    """
    alike: dict[Gate, list[str]] = {}
    for gate in gates:
        if gate.op in undecided:
            alike.setdefault(replace(gate, op=""), []).append(gate.op)
    ways = (zip(alike.values(), chosen, strict=True) for chosen in product((True, False), repeat=len(alike)))
    choices = tuple({op: is_due for ops, is_due in way for op in ops} for way in ways)
    return [gate for gate in gates if gate.op not in undecided], choices


def enumerate_datasets(
    gates: Sequence[Gate], always: Mapping[str, frozenset[str]], undecided: frozenset[str] = frozenset()
) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every set of gated ops that fires in some step on a batch of some data set, whatever their order.

    ``always``: by data set, the ops that fire in every step on a batch of it. Otherwise as
    :func:`enumerate_patterns`.
    """
    decided, choices = _split(gates, undecided)
    period = find_period(decided)
    if period > LONGEST_PERIOD:
        raise ValueError(f"the clocks of {', '.join(gate.op for gate in gates)} only repeat after {period} steps")
    counted = [gate for gate in decided if gate.clock == "writes"]
    turns = [(dataset, free, due) for dataset, free in always.items() for due in choices]
    rhythm = math.lcm(*(gate.every for gate in gates if gate.clock == "steps"))
    seen: dict[tuple[str, frozenset[str]], None] = {}
    states = {tuple(0 for _ in counted)}
    begun: set[tuple[int, bool, frozenset[tuple[int, ...]]]] = set()
    for begin, end in _find_stretches(gates):
        if end is not None and begin > _last_break(gates):  # epochs from here on have nothing but their number
            place = begin % rhythm, any(ends_epoch(gate, begin) for gate in gates), frozenset(states)
            if place in begun:
                break
            begun.add(place)
        met: dict[tuple[int, frozenset[tuple[int, ...]]], int] = {}
        step = begin
        while end is None or step < end:
            key = step % rhythm, frozenset(states)
            if key in met and end is None:
                break
            if key in met and end is not None:
                step = end - (end - step) % (step - met[key])  # whole rounds bring nothing new
            met[key] = step
            states = {after for before in states for after in _branch(gates, counted, step, before, turns, seen)}
            step += 1
    return tuple(seen)


def _branch(
    gates: Sequence[Gate],
    counted: Sequence[Gate],
    step: int,
    before: tuple[int, ...],
    turns: Iterable[tuple[str, frozenset[str], Mapping[str, bool]]],
    seen: dict[tuple[str, frozenset[str]], None],
) -> Iterator[tuple[int, ...]]:
    """Yield the counts after a step, one for each of its turns; what fires in it is noted.

    A turn: the data set that the batch may be of, the ops that fire on all of it, which undecided gates are due.
    """
    counts = {gate.op: count for gate, count in zip(counted, before, strict=True)}
    for dataset, free, due in turns:
        fired = fire(gates, step, counts, free, dataset, due)
        seen.setdefault((dataset, fired))
        now = fired | free
        yield tuple(count_on(gate, counts[gate.op], step, now, dataset) for gate in counted)


def _find_stretches(gates: Sequence[Gate]) -> Iterator[tuple[int, int | None]]:
    """Yield the stretches of steps between starts and ends, the last without an end.

    Where gates have to do with epochs these are cut before and behind the last step of every epoch, for ever.
    """
    epoch = next((gate.epoch for gate in gates if gate.epoch is not None), None)
    breaks = _find_breaks(gates)
    if epoch is None:
        yield from zip(breaks, [*breaks[1:], None], strict=True)
        return
    begin = 1
    while True:
        last = ((begin - 1) // epoch + 1) * epoch
        cut = last if begin < last else last + 1
        end = min((each for each in breaks if begin < each < cut), default=cut)
        yield begin, end
        begin = end


def _find_breaks(gates: Sequence[Gate]) -> list[int]:
    """Return the steps with which stretches begin: the first, starts, and those behind ends."""
    starts = (gate.start for gate in gates if gate.start is not None)
    ends = (gate.until + 1 for gate in gates if gate.until is not None)
    return sorted({1, *starts, *ends})


def _last_break(gates: Sequence[Gate]) -> int:
    """Return the step with which the last stretch begins."""
    return _find_breaks(gates)[-1]


def keep_firing(gates: Sequence[Gate], patterns: Iterable[frozenset[str]], always: frozenset[str]) -> tuple[Gate, ...]:
    """Return the gates of ops that fire in some pattern, following only ops that can fire.

    An op that follows an update of another mode never fires in this one.
    """
    fired = frozenset[str]().union(*patterns)
    possible = fired | always
    return tuple(
        replace(gate, follows=tuple(tuple(op for op in group if op in possible) for group in gate.follows))
        for gate in gates
        if gate.op in fired
    )


def find_period(gates: Sequence[Gate]) -> int:
    """Return a number of steps after which gates and counters are back where they were."""
    steps = math.lcm(*(gate.every for gate in gates if gate.clock == "steps"))
    return steps * math.prod(gate.every for gate in gates if gate.clock == "writes")


def _walk(gates: Sequence[Gate], period: int) -> Iterator[int]:
    """Yield the steps worth looking at: of every stretch between breakpoints its first period and its remainder."""
    breaks = _find_breaks(gates)
    for begin, end in zip(breaks, [*breaks[1:], breaks[-1] + period], strict=True):
        length = end - begin
        if length <= 2 * period:
            yield from range(begin, end)
        else:
            yield from range(begin, begin + period)
            yield from range(end - length % period, end)


def _is_due(gate: Gate, step: int) -> bool:
    """Return whether a gate on the clock ``steps`` stands on one of its multiples."""
    return (step - (gate.start or gate.every)) % gate.every == 0


def _is_multiple(gate: Gate, count: int) -> bool:
    """Return whether a gate is due after ``count`` earlier counted steps: the first one where it has a start."""
    return (count if gate.start is not None else count + 1) % gate.every == 0


def _is_within(gate: Gate, step: int, dataset: str) -> bool:
    """Return whether a step lies between a gate's start and end (inclusive), on a batch of its data sets."""
    if gate.datasets and dataset not in gate.datasets:
        return False
    return (gate.start is None or step >= gate.start) and (gate.until is None or step <= gate.until)
