"""Writes that no step of training reaches, found by taking steps until all clocks have come round."""

from __future__ import annotations

from random import Random

from graphspec.analysis.datasets import find_datasets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp
from tests.oracle.clocks import Clocks, Pace, written_name
from tests.oracle.meaning import WRITERS, Meaning

STEPS = 200
"""More than the clocks of random specs need: a few intervals of 2 to 4 steps, and starts and ends before step 30."""


def find_idle(spec: GraphSpec, pace: Pace | None = None) -> set[str]:
    """Return the writes that fire in none of the first steps, of batches in a random order, where nothing is held."""
    order, clocks = Random(0), Clocks(pace or Pace())
    meanings = [Meaning(spec, "train", name) for name in find_datasets(spec) or ("",)]
    writes = {name: each.ops[name] for each in meanings for name in each.gated if isinstance(each.ops[name], WRITERS)}
    # An average or copy is one in all iterations, of which some may leave it to others.
    alike = {name: written_name(name, op) if isinstance(op, EmaOp | CopyOp) else name for name, op in writes.items()}
    idle = set(alike.values())
    for _ in range(STEPS):
        meaning = order.choice(meanings)
        firing = meaning.firing(clocks.admit(meaning), clocks.gathering)
        idle -= {alike[name] for name in clocks.admitted.intersection(firing) if name in alike}
        clocks.note(meaning, firing, set())
        if not idle:
            break
    # an average's writing back into its model is no op of the spec
    return {name for name, one in alike.items() if one in idle and name in spec.ops}
