"""When ops fire: which gates open in a step, and what they have counted after it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain, pairwise

from msgspec.structs import replace

from compiler.ir.digraph import sort
from compiler.ir.program import Gate

BY_COUNT: Mapping[str, bool] = {}
NO_DRAWS: Mapping[str, float] = {}
NO_COUNTS: Mapping[str, int] = {}
LONGEST_PERIOD = 100_000
"""Steps within which a pattern of gates must repeat; a longer period is almost certainly a mistake in the clocks."""


def sort_gates(gates: Iterable[Gate], repeated: Iterable[tuple[str, ...]]) -> tuple[Gate, ...]:
    """Return the gates so that each comes after those it follows, and each iteration of what is repeated in its order.

    One iteration counts before the next, however they are listed.
    """
    by_op = {gate.op: gate for gate in gates}
    followed = {op: list(filter(by_op.__contains__, chain(*gate.follows))) for op, gate in by_op.items()}
    for names in repeated:
        for before, after in pairwise(filter(by_op.__contains__, names)):
            followed[after].append(before)
    return tuple(map(by_op.__getitem__, sort(followed)))


def fire(
    gates: Sequence[Gate],
    step: int,
    counts: Mapping[str, int],
    always: frozenset[str],
    dataset: str = "",
    due: Mapping[str, bool] = BY_COUNT,
    draws: Mapping[str, float] = NO_DRAWS,
) -> frozenset[str]:
    """Return the gated ops that fire in a step (1-based) on a batch of a data set.

    ``counts`` holds, for gates on the clock ``writes``, how many steps counted before this one; ``always`` are the ops
    that fire in every step. ``due`` says of some gates whether they are due where the step counts for them, and whether
    they have counted anything where an epoch ends; of those with ``first`` or ``last`` it always must. ``draws`` are
    the numbers that were drawn, from 0 to 1; a gate opens with any other.
    """
    fired, counted = set[str](), dict(counts)
    for gate in gates:
        if gate.draw and not gate.low <= draws.get(gate.draw, gate.low) < gate.high:
            continue
        if gate.clock == "steps":
            is_at = (step - (gate.start or gate.every)) % gate.every == 0
            opens = is_at and _is_within(gate, step, dataset) and (not gate.is_counted or due[gate.op])
        elif gate.clock == "epochs":
            opens = ends_epoch(gate, step)
        else:
            now, count = counts_now(gate, step, always.union(fired), dataset), counted.get(gate.counter, 0)
            counted[gate.counter] = count + now
            opens = now and due.get(gate.op, is_due(gate, count))
            opens = opens or (gate.flush and ends_epoch(gate, step) and (now or due.get(gate.op, count > 0)))
        if opens:
            fired.add(gate.op)
    return frozenset(fired)


def is_due(gate: Gate, count: int) -> bool:
    """Return whether a gate on the clock ``writes`` is due in a step that counts, after so many that did.

    With a start the first of them is due, without one the n-th.
    """
    return (count if gate.has_start else count + 1) % gate.every == 0


def counts_now(gate: Gate, step: int, fired: frozenset[str], dataset: str = "") -> bool:
    """Return whether a step counts for a gate on the clock ``writes``: every group it follows has an op that fired."""
    return _is_within(gate, step, dataset) and all(map(fired.intersection, gate.follows))


def ends_epoch(gate: Gate, step: int) -> bool:
    """Return whether a step is the last of an epoch for a gate that has to do with that."""
    return gate.epoch is not None and step % gate.epoch == 0


def count_on(
    gate: Gate, count: int, step: int, fired: frozenset[str], dataset: str = "", others: Sequence[Gate] = ()
) -> int:
    """Return what a gate on the clock ``writes`` has counted after a step, with others, up to what it fires at."""
    counted = sum(counts_now(each, step, fired, dataset) for each in (gate, *others))
    return 0 if ends_epoch(gate, step) else (count + counted) % gate.every


def find_sharing(gates: Iterable[Gate]) -> Mapping[str, tuple[Gate, ...]]:
    """Return the gates that count with another, by the op of that."""
    found: dict[str, tuple[Gate, ...]] = {}
    for gate in gates:
        if gate.counts_with:
            found[gate.counts_with] = (*found.get(gate.counts_with, ()), gate)
    return found


def find_ungated(gates: Sequence[Gate]) -> frozenset[str]:
    """Return the ops that gates follow or count and that have no gate of their own: they fire in every step."""
    gated, named = set[str](), set[str]()
    for gate in gates:
        gated.add(gate.op)
        named.update(gate.counted, *gate.follows)
    return frozenset(named - gated)


def merge_alike(
    gates: Iterable[Gate],
    always: Iterable[frozenset[str]],
    apart: Container[str] = (),
    counts: Mapping[str, int] = NO_COUNTS,
) -> tuple[tuple[Gate, ...], Mapping[str, tuple[str, ...]]]:
    """Return one gate, the first, for each set that opens in the same steps; and, by its op, the ops of the whole set.

    The windows and averages of an ensemble become a few gates, for any number of members; a gate alone has no set. Each
    comes after those that it follows. ``always``: for every data set the ops that fire in all its steps; ``apart``: the
    ops of gates that are left as they are, since what they count may be held; ``counts``: what gates have counted so
    far.
    """
    listed = tuple(gates)
    sharing, known = find_sharing(listed), tuple(always)
    kept: list[Gate] = []
    first: dict[tuple[Gate, int], str] = {}
    stands_for: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for gate in listed:
        groups, waits = list[tuple[str, ...]](), set[tuple[str, ...]]()
        for followed in gate.follows:
            group = tuple(dict.fromkeys(map(stands_for.get, followed, followed)))
            groups.append(group)
            if any(each.isdisjoint(group) for each in known):  # what follows an op of every step never waits for it
                waits.add(group)
        merged = replace(gate, follows=tuple(groups))
        is_own = gate.op in apart or gate.counts_with or gate.op in sharing
        same = replace(merged, op=gate.op if is_own else "", follows=tuple(sorted(waits))), counts.get(gate.op, 0)
        name = stands_for[gate.op] = first.setdefault(same, gate.op)
        if name == gate.op:
            kept.append(merged)
        else:
            alike.setdefault(name, [name]).append(gate.op)
    return tuple(kept), {name: tuple(ops) for name, ops in alike.items()}


def find_breaks(gates: Sequence[Gate]) -> list[int]:
    """Return the steps with which stretches begin: the first, starts, and those after ends."""
    breaks = {1}
    for gate in gates:
        if gate.start is not None:
            breaks.add(gate.start)
        if gate.until is not None:
            breaks.add(gate.until + 1)
    return sorted(breaks)


def keep_firing(gates: Sequence[Gate], patterns: Iterable[frozenset[str]], always: frozenset[str]) -> tuple[Gate, ...]:
    """Return the gates of ops that fire in some pattern, following and counting only ops that can fire.

    An op that follows an update of another mode never fires in this one.
    """
    fired = frozenset[str]().union(*patterns)
    possible = fired | always
    counters = {gate.counter for gate in gates if gate.op in fired}

    def keep(group: tuple[str, ...]) -> tuple[str, ...]:
        """Return the ops of a group that can fire."""
        return tuple(filter(possible.__contains__, group))

    return tuple(
        replace(gate, follows=tuple(map(keep, gate.follows)), counted=keep(gate.counted))
        for gate in gates
        if gate.counter in counters
    )


def find_draws(gates: Sequence[Gate]) -> Mapping[str, tuple[float, ...]]:
    """Return, for everything that is drawn, one number of every share that opens other gates."""
    ends: dict[str, set[float]] = {}
    for gate in gates:
        if gate.draw:
            ends.setdefault(gate.draw, {0.0}).update((gate.low, gate.high))
    return {name: tuple(sorted(each for each in found if each < 1)) for name, found in ends.items()}


def find_period(gates: Sequence[Gate]) -> int:
    """Return a number of steps after which gates and counters are back where they were.

    Gates that count the same steps turn together: seventeen windows of two steps are back after two.
    """
    steps, sharing, turning = 1, find_sharing(gates), dict[Gate, int]()
    for gate in gates:
        if gate.clock == "steps":
            steps = math.lcm(steps, gate.every)
        elif gate.clock == "writes" and not gate.counts_with:
            counting = replace(gate, op=gate.op if gate.op in sharing else "", every=1, flush=False)
            turning[counting] = math.lcm(turning.get(counting, 1), gate.every)
    return steps * math.prod(turning.values())


def _is_within(gate: Gate, step: int, dataset: str) -> bool:
    """Return whether a step lies between a gate's start and end (inclusive), on a batch of its data sets."""
    if gate.datasets and dataset not in gate.datasets:
        return False
    return (gate.start is None or step >= gate.start) and (gate.until is None or step <= gate.until)
