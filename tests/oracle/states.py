"""Declared states: what they begin with, keyed by (seed, state)."""

from __future__ import annotations

import numpy as np

from graphspec.declare.inputs import StateSpec
from tests.oracle.draws import draw, make_key


def begin(name: str, declared: StateSpec, seed: int) -> np.ndarray:
    """Return a state before the first step."""
    key, shape = make_key(seed, "state", name), declared.shape
    match declared.init:
        case "uniform":
            return 2 * draw(key, shape, "uniform") - 1
        case "normal":
            return draw(key, shape, "normal")
        case "unit_normal":
            rows = draw(key, shape, "normal")
            return rows / np.linalg.norm(rows, axis=-1, keepdims=True)
        case "zeros" | "ones" as word:
            return np.full(shape, float(word == "ones"))
        case number:
            return np.full(shape, number)
