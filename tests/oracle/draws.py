"""Portable random numbers: Threefry-2x32-20 (Salmon et al. 2011) from its paper, and the numbers made of its bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

_MASK = np.uint64(0xFFFFFFFF)
_PARITY = 0x1BD11BDA
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_QUANTILE = np.frompyfunc(NormalDist().inv_cdf, 1, 1)

Words = tuple[int, int]


def threefry(key: Words, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two 32-bit words of every counter, in 64-bit integers."""
    schedule = [np.uint64(word) for word in (*key, key[0] ^ key[1] ^ _PARITY)]
    x, y = (low + schedule[0]) & _MASK, (high + schedule[1]) & _MASK
    for turn in range(20):
        bits = np.uint64(_ROTATIONS[turn % 8])
        x = (x + y) & _MASK
        y = (((y << bits) & _MASK) | (y >> (np.uint64(32) - bits))) ^ x
        if turn % 4 == 3:
            block = turn // 4 + 1
            x = (x + schedule[block % 3]) & _MASK
            y = (y + schedule[(block + 1) % 3] + np.uint64(block)) & _MASK
    return x, y


def make_key(*parts: object) -> Words:
    """Return the key that stands for some words: the first eight bytes of the SHA-256 of their lines."""
    first = hashlib.sha256("\n".join(str(part) for part in parts).encode()).digest()[:8]
    return int.from_bytes(first[:4], "little"), int.from_bytes(first[4:], "little")


def draw_bits(key: Words, count: int) -> np.ndarray:
    """Return numbers of 53 random bits."""
    index = np.arange(count, dtype=np.uint64)
    first, second = threefry(key, index & _MASK, index >> np.uint64(32))
    return (first >> np.uint64(5)) * np.uint64(1 << 26) + (second >> np.uint64(6))


def draw(key: Words, shape: Sequence[int], kind: str) -> np.ndarray:
    """Return ``uniform`` numbers in [0, 1), ``normal`` ones, or ``bits``."""
    bits = draw_bits(key, int(np.prod(shape, dtype=int)))
    match kind:
        case "bits":
            return bits.reshape(shape)
        case "uniform":
            return (bits / 2.0**53).reshape(shape)
        case _:
            return _QUANTILE(((bits >> np.uint64(1)) + 0.5) / 2.0**52).astype(np.float64).reshape(shape)


class Draws:
    """The numbers of one spec, keyed by (seed, mode, step, op) and counted within the op."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def numbers(self, mode: str, step: int, op: str, index: int, shape: Sequence[int], kind: str) -> np.ndarray:
        """Return what an op draws: ``index`` counts its draws in the step."""
        words = make_key(self.seed, "draw", mode, op)
        low, high = threefry(words, np.array([step], np.uint64), np.array([index], np.uint64))
        return draw((int(low[0]), int(high[0])), shape, kind)
