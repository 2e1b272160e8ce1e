"""Analyses of a spec that many ops ask for: each is made once, and forgotten with the spec."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

from graphspec.declare.graph import GraphSpec

T = TypeVar("T")


def once_per_spec(analyse: Callable[[GraphSpec], T]) -> Callable[[GraphSpec], T]:
    """Return an analysis that runs once per spec; callers must not change its result.

    Specs are frozen but hold mappings, so the cache is keyed by identity and not by content.
    """
    made: dict[int, tuple[weakref.ref[GraphSpec], T]] = {}

    @functools.wraps(analyse)
    def find(spec: GraphSpec) -> T:
        """Return what was made before, or make it."""
        known = made.get(id(spec))
        if known is not None and known[0]() is spec:
            return known[1]
        result = analyse(spec)
        place = id(spec)
        made[place] = weakref.ref(spec, lambda _: made.pop(place, None)), result
        return result

    return find
