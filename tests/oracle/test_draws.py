"""The portable random numbers of the oracle: published answers, and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracle.draws import draw, make_key, threefry

# Known answers of Threefry-2x32 with 20 rounds, published with Random123 (kat_vectors).
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "expected"), KNOWN)
def test_threefry_gives_the_published_answers(key, counter, expected):
    words = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in threefry(key, *words)) == expected


def test_uniform_numbers_fill_the_unit_interval_evenly():
    found = draw(make_key("even"), (20_000,), "uniform")
    assert found.min() >= 0
    assert found.max() < 1
    counts = np.histogram(found, bins=10, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # chi-square with 9 degrees of freedom, p = 0.001


def test_normal_numbers_have_the_shares_of_the_normal_distribution():
    found = draw(make_key("bell"), (20_000,), "normal")
    for limit in (0.5, 1.0, 2.0):
        share = math.erf(limit / math.sqrt(2))
        assert abs((np.abs(found) < limit).mean() - share) < 4 * math.sqrt(share * (1 - share) / 20_000)


def test_keys_differ_in_every_part():
    parts = [(0, "draw", "train", "z"), (1, "draw", "train", "z"), (0, "draw", "eval", "z"), (0, "draw", "train", "w")]
    assert len({make_key(*part) for part in parts}) == len(parts)
