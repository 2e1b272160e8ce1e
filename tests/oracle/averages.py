"""What an average keeps: the formulas of the papers, read with the number of a write, from 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from graphspec.declare.durations import Duration
from graphspec.declare.ops import EmaOp

Formula = Callable[[Mapping[str, float], int], float]


def _limited(given: Mapping[str, float], share: float, t: int) -> float:
    """Return a share within limits; the first write is a copy."""
    return 0.0 if t == 1 else sorted((given.get("min", 0.0), share, given["max"]))[1]


FORMULAS: Mapping[str, Formula] = {
    "tf": lambda o, t: min(o["max"], (1 + t) / (10 + t)),
    "tf_warm": lambda o, t: _limited(o, (1 + (t - 1)) / (10 + (t - 1)), t),
    "inverse_power": lambda o, t: _limited(o, 1 - (1 + (t - 1) / o["gamma"]) ** -o["power"], t),
    "exp_ramp": lambda o, t: o["max"] * (1 - math.exp(-t / o["tau"])),
    "anneal": lambda o, t: 1 - max(1 - o["max"], o["gamma"] / (o["gamma"] + t - 1)),
    "cosine": lambda o, t: o["to"] - (o["to"] - o["from"]) * (1 + math.cos(math.pi * min((t - 1) / o["K"], 1))) / 2,
    "power": lambda o, t: (1 - 1 / t) ** (o["gamma"] + 1),
    "uniform": lambda o, t: 1 - 1 / t,
    "hard": lambda o, t: float(t % o["every"] != 0),
}


def of_write(op: EmaOp, t: int) -> float:
    """Return the share of the old average that the t-th write alone would keep."""
    if op.halving is not None:
        return 0.5 ** (1.0 / op.halving.count)
    if op.formula is None:
        decay = getattr(op.decay, "decay", op.decay)
        return decay if decay is not None else 1.0 - op.tau
    given = {name: value for name, value in op.formula.resolved.items() if isinstance(value, int | float)}
    if op.formula.kind == "cosine":
        over = op.formula.over
        given["K"] = (over.count if isinstance(over, Duration) else over) - (1 if op.formula.endpoint else 0)
    if "sigma_rel" in given:
        given["gamma"] = _exponent(given["sigma_rel"])
    return FORMULAS[op.formula.kind](given, t)


def _exponent(width: float) -> float:
    """Return g such that p(t) = t^g on [0, 1] has a standard deviation, which falls with g: by halving."""
    low, high = 0.0, 1e6
    for _ in range(200):
        g = (low + high) / 2
        is_wide = (g + 1) / (g + 3) - ((g + 1) / (g + 2)) ** 2 > width**2
        low, high = (g, high) if is_wide else (low, g)
    return low


def of_firing(op: EmaOp, number: int) -> float:
    """Return what the firing of a number keeps, from 1; ``every: k`` compounds where it is asked to."""
    interval = op.every if isinstance(op.every, int) and getattr(op.formula, "kind", "") != "uniform" else 1
    first = interval if op.start is None else 1
    t = first + interval * (number - 1)
    if op.correction == "none":
        return of_write(op, t)
    return float(np.prod([of_write(op, each) for each in range(t, 0, -1)[: first if number == 1 else interval]]))


def mix(op: EmaOp, number: int, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the average after the firing of a number, from 1; 0 is one before the average begins."""
    if number == 0 or (number == 1 and op.beginning == "first_update"):
        return new
    kept = of_firing(op, number)
    if op.beginning != "zeros":
        return kept * old + (1 - kept) * new
    # What is read is e / (1 - the product of all decays); e itself began at zero.
    before = float(np.prod([of_firing(op, each) for each in range(1, number)]))
    if before * kept == 1:
        return old + 0 * new  # what is not finite shows in a mix of which it has no share, too
    raw = kept * (old * (1 - before)) + (1 - kept) * new
    return raw / (1 - before * kept)


DIGITS = {"float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
"""The binary digits of a number of each type, and the exponent below which they become fewer (IEEE 754)."""


def nearest(dtype: str, values: np.ndarray) -> np.ndarray:
    """Return the nearest numbers of a type, the even one of two that are as near.

    Those of float16 and bfloat16 are nearest to the number in float32, by way of which both frameworks convert.
    """
    values = values if dtype == "float32" else nearest("float32", values)
    digits, least = DIGITS[dtype]
    exponents = np.maximum(np.frexp(values)[1] - 1, least)
    steps = np.ldexp(1.0, exponents - digits + 1)
    return np.rint(values / steps) * steps


def either_way(dtype: str, values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the next number of a type below, or, where the distance to it plus a share is a whole step, above."""
    digits, least = DIGITS[dtype]
    exponents = np.maximum(np.frexp(values)[1] - 1, -119 if dtype == "bfloat16" else least)
    steps = np.ldexp(1.0, exponents - digits + 1)
    return np.floor(values / steps + shares) * steps
