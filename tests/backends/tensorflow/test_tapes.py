"""Tapes of gradients: how they nest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

from msgspec.structs import replace

from runtime.backends.tensorflow.codegen.tapes import Tape, nest


def draw_tapes(random: Random) -> list[Tape]:
    """Return tapes over random stretches of a short function, often with the same ends."""
    ends = (sorted((random.randrange(12), random.randrange(12))) for _ in range(random.randrange(8)))
    return [Tape(first=first, last=last, gradients=(12 + at,)) for at, (first, last) in enumerate(ends)]


def widen(tapes: Sequence[Tape]) -> list[Tape]:
    """Return the tapes with each that crosses one widened to its beginning, until none crosses another."""
    widened = list(tapes)
    while True:
        crossing = (
            (early, late)
            for early, late in permutations(range(len(widened)), 2)
            if widened[early].first < widened[late].first <= widened[early].last < widened[late].last
        )
        found = next(crossing, None)
        if found is None:
            return widened
        early, late = found
        widened[late] = replace(widened[late], first=widened[early].first)


def test_tapes_are_no_wider_than_it_takes_to_nest_them():
    random = Random(7)
    for _ in range(3_000):
        tapes = draw_tapes(random)
        assert sorted(nest(tapes), key=lambda tape: tape.gradients) == widen(tapes)
