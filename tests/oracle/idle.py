"""Writes that no step of training reaches, found by taking steps until all clocks have come round."""

from __future__ import annotations

from random import Random

from graphspec.analysis.datasets import find_datasets
from graphspec.declare.graph import GraphSpec
from tests.oracle.clocks import Clocks, Pace
from tests.oracle.meaning import WRITERS, Meaning

STEPS = 200
"""More than the clocks of random specs need: a few intervals of 2 to 4 steps, and starts and ends before step 30."""


def find_idle(spec: GraphSpec, pace: Pace | None = None) -> set[str]:
    """Return the writes that fire in none of the first steps, of batches in a random order, where nothing is held."""
    order, clocks = Random(0), Clocks(pace or Pace())
    meanings = [Meaning(spec, "train", name) for name in find_datasets(spec) or ("",)]
    idle = {name for each in meanings for name in each.gated if isinstance(each.ops[name], WRITERS)}
    for _ in range(STEPS):
        meaning = order.choice(meanings)
        firing = meaning.firing(clocks.admit(meaning), clocks.gathering)
        idle -= clocks.admitted.intersection(firing)
        clocks.note(meaning, firing, set())
        if not idle:
            break
    return idle & spec.ops.keys()  # an average's writing back into its model is none of them
