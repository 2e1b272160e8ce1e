"""The averages and copies of a loop, and how much of the old numbers they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from runtime.audit.findings.finding import Evidence
from runtime.audit.findings.update_clocks import find_averages as find_turns
from runtime.audit.trace import Place
from runtime.port.tape import Tape

_CLOSE = 1e-4
"""How near a decay is to 0 or 1 where it is that."""
_SAME = 0.02
"""How far shares of the new numbers lie apart that are one number, but for the rounding of small moves."""
_ROUND = 0.005
"""How near such a share is to a number of few digits that was meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A model that follows another."""

    source: str
    target: str
    place: Place
    positions: tuple[int, ...]
    decay: float
    """The share of the old numbers that is kept; 0 is a copy."""
    tau: float
    buffers: Literal["", "copy", "average", "ignore"]
    """What becomes of its buffers; empty where it has none."""
    copies_first: bool
    """Its first move is a copy."""
    alike: bool
    """It begins with the numbers of its source."""
    todo: str = ""


def find_averages(tape: Tape) -> tuple[Average, ...]:
    """Return the averages of a loop: between models of the same structure whose tensors follow one another."""
    owners = {number: (name, inner) for name, model in tape.models.items() for number, inner in model.tensors.items()}
    turns = [turn for each in find_turns(Evidence(tape.trace)).values() for turn in each]
    pairs: dict[tuple[str, str], dict[int, int]] = {}
    places: dict[tuple[str, str], list[tuple[int, Place]]] = {}
    for turn in turns:
        for target, source in turn.pairs.items():
            if target in owners and source in owners and owners[target][1] == owners[source][1]:
                key = owners[source][0], owners[target][0]
                pairs.setdefault(key, {})[target] = source
                places.setdefault(key, []).append((turn.first, turn.place))
    found: list[Average] = []
    kinds = {each.number: each.kind for each in tape.trace.tensors}
    for (source, target), members in pairs.items():
        positions = tuple(sorted({position for position, _ in places[source, target]}))
        weights = {one: other for one, other in members.items() if kinds.get(one) != "buffers"}
        decay, copies_first, todo = _find_decay(tape, weights or members, positions)
        first = tape.snapshots[0][1]
        alike = all(
            one in first and other in first and np.array_equal(first[one], first[other])
            for one, other in members.items()
        )
        found.append(
            Average(
                source=source,
                target=target,
                place=places[source, target][0][1],
                positions=positions,
                decay=decay,
                tau=_round(1 - decay),
                buffers=_find_buffers(tape, target, members, kinds, positions),
                copies_first=copies_first,
                alike=alike,
                todo=todo,
            )
        )
    return tuple(found)


def _find_decay(tape: Tape, members: Mapping[int, int], positions: Sequence[int]) -> tuple[float, bool, str]:
    """Return the share of the old numbers that moves keep, whether the first is a copy, and what is doubtful.

    That of each move is by least squares.
    """
    found: list[float] = []
    for (begun, before), (ended, after) in pairwise(tape.snapshots):
        if sum(begun <= each < ended for each in positions) != 1:
            continue
        old, new, goal = (
            np.concatenate([np.ravel(part[number]).astype("float64") for number in numbers])
            for part, numbers in ((before, members), (after, members), (after, members.values()))
        )
        gap = old - goal
        if float(gap @ gap) > 0:
            found.append(float((new - goal) @ gap) / float(gap @ gap))
    if not found:
        return 0.0, False, "it was not seen to move: write its decay"
    copies_first = len(found) > 1 and abs(found[0]) < _CLOSE <= abs(found[1])
    found = found[copies_first:]
    decay = 1 - _round(1 - found[-1])
    decay = 0.0 if abs(decay) < _CLOSE else float(f"{decay:.12g}")
    changes = max(abs(each - found[-1]) for each in found) > _SAME * max(1 - found[-1], _CLOSE)
    shown = ", ".join(f"{each:.5g}" for each in found)
    return decay, copies_first, f"its decay changes ({shown}): write a formula" if changes else ""


def _find_buffers(
    tape: Tape, target: str, members: Mapping[int, int], kinds: Mapping[int, str], positions: Sequence[int]
) -> Literal["", "copy", "average", "ignore"]:
    """Return what becomes of the buffers of an average: all of them must follow, or they do not count as followed."""
    buffers = {number for number in tape.models[target].tensors if kinds.get(number) == "buffers"}
    if not buffers:
        return ""
    if not buffers <= members.keys():
        return "ignore"
    moves = [
        (before, after)
        for (begun, before), (ended, after) in pairwise(tape.snapshots)
        if any(begun <= each < ended for each in positions)
    ]
    # a forward may have moved those of the source since they were copied
    is_copied = all(
        any(np.array_equal(after[each], part[members[each]]) for part in (before, after))
        for before, after in moves
        for each in buffers
    )
    return "copy" if is_copied else "average"


def _round(tau: float) -> float:
    nearest = (float(f"{tau:.{digits}g}") for digits in (1, 2, 3))
    return next((near for near in nearest if abs(near - tau) <= _ROUND * abs(tau)), tau)
