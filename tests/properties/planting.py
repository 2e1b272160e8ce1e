"""Planted overflows: inputs that are 1, in some steps not finite, by which losses of random specs are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from zlib import crc32

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp

Kind = Literal["fuse", "late"]
"""A fuse blows every now and then, in one row, or in the steps that it names: `fuse_at_2`; what is late blows only in
the third step, the last that is judged."""
SHARE = 0.35
"""In so many steps a fuse blows."""
LAST = 3
STEEP = 1.7e308
"""A factor of a penalty that twice is no number of float64."""

Values = Mapping[str, np.ndarray]


def is_planted(spec: GraphSpec, kind: Kind | Literal[""] = "") -> bool:
    """Return whether a spec has a planted overflow, or one of a kind."""
    return any(name.startswith((kind,) if kind else ("fuse", "late")) for name in spec.inputs)


def plant(batch: Values, seed: int, number: int) -> Values:
    """Return the batch of a step, from 1, with ones in place of drawn numbers where an overflow may be planted.

    In a step 0 there is none.
    """
    return {
        name: _make(name, value.shape, seed, number) if name.startswith(("fuse", "late")) else value
        for name, value in batch.items()
    }


def _make(name: str, shape: tuple[int, ...], seed: int, number: int) -> np.ndarray:
    generator = np.random.default_rng([seed, crc32(name.encode()), number])
    found, chosen = np.ones(shape), number > 0 and generator.random() < SHARE
    if name.startswith("fuse_at"):
        found[0] = np.inf if str(number) in name.split("_") else 1.0
    elif number == LAST if name.startswith("late") else chosen:
        found[generator.integers(shape[0])] = generator.choice([np.inf, -np.inf, np.nan])
    return found


def find_steep(spec: GraphSpec) -> set[str]:
    """Return the updates of models whose penalty has a factor so large that its slope is infinite at some time."""
    steep = {name for name, model in spec.models.items() if repr(STEEP) in repr(model.regularizer)}
    updates = ((name, op) for name, op in spec.ops.items() if isinstance(op, UpdateOp))
    return {name for name, op in updates if steep.intersection(op.update)}


def find_reached(spec: GraphSpec, batch: Values) -> frozenset[str]:
    """Return the values, and the updates, of a step that inputs which are not finite reach, weights aside."""
    reached = {name for name, value in batch.items() if not np.isfinite(value).all()} | find_steep(spec)
    before = -1
    while before < len(reached):
        before = len(reached)
        for name, op in spec.ops.items():
            if any(operand.name in reached for operand in op.operands()):
                reached |= {name, *op.defines(name)}
    return frozenset(reached)
