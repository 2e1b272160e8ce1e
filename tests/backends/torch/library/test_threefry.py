"""Portable numbers against the published vectors of Random123, the standard library and moments."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch

from runtime.backends.torch.library.threefry import (
    derive_key,
    inverse_normal,
    natural_log,
    portable_numbers,
    random_bits,
    threefry,
)

ONES = (0xFFFFFFFF, 0xFFFFFFFF)
# Random123's kat_vectors: threefry2x32, 20 rounds: key, counter, result.
VECTORS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (ONES, ONES, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "words"), VECTORS)
def test_threefry_gives_the_published_words_for_integers_and_tensors(key, counter, words):
    tensors = threefry(key, tuple(torch.tensor([word]) for word in counter))
    assert threefry(key, counter) == words
    assert tuple(int(word) for word in tensors) == words


def test_a_sequence_is_the_same_from_whatever_place_it_is_read():
    key, start = (3, 5), 2**32 - 2
    whole = random_bits(key, start, 5)
    assert torch.equal(whole[3:], random_bits(key, start + 3, 2))
    high, low = threefry(key, (1, 1))  # number 2**32 + 1 has the counter words (1, 1)
    assert int(whole[3]) == (high >> 5) * 2**26 + (low >> 6)


def test_numbers_do_not_depend_on_how_many_are_made():
    many = portable_numbers((1, 2), 70_000, "normal")
    assert torch.equal(many[:10], portable_numbers((1, 2), 10, "normal"))
    bits = random_bits((1, 2), 69_999, 1)  # behind the first chunk
    assert float(many[-1]) == pytest.approx(NormalDist().inv_cdf(((int(bits) >> 1) + 0.5) * 2.0**-52), rel=1e-12)


def test_uniform_numbers_fill_the_unit_interval_evenly():
    numbers = portable_numbers((9, 9), 100_000, "uniform")
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    share = torch.histc(numbers, 10, 0, 1) / numbers.numel()
    assert torch.allclose(share, torch.full_like(share, 0.1), atol=5 * math.sqrt(0.09 / numbers.numel()))


def test_uniform_numbers_have_53_bits():
    bits = portable_numbers((8, 1), 500, "bits").tolist()
    assert portable_numbers((8, 1), 500, "uniform").tolist() == [number / 2**53 for number in bits]


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    numbers = portable_numbers((4, 2), 200_000, "normal")
    moments = [float((numbers**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)


def test_normal_numbers_are_the_quantiles_of_the_uniform_bits():
    bits = portable_numbers((8, 1), 500, "bits").tolist()
    expected = [NormalDist().inv_cdf(((number >> 1) + 0.5) * 2.0**-52) for number in bits]
    assert portable_numbers((8, 1), 500, "normal").tolist() == pytest.approx(expected, rel=1e-12)


def test_quantiles_are_those_of_the_standard_library_far_into_the_tails():
    inner = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    tails = torch.logspace(-15.9, -3, 300, dtype=torch.float64)
    p = torch.cat((inner, tails, 1 - tails))
    expected = [NormalDist().inv_cdf(x) for x in p.tolist()]
    assert inverse_normal(p).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_the_logarithm_is_right_to_the_last_digits():
    x = torch.cat((torch.logspace(-300, 300, 1201, dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)))
    assert natural_log(x).tolist() == pytest.approx([math.log(number) for number in x.tolist()], rel=2e-15)


def test_keys_differ_where_the_parts_or_their_borders_do():
    keys = {derive_key(1, "ab", "c"), derive_key(1, "a", "bc"), derive_key(2, "ab", "c"), derive_key("ab", 1, "c")}
    assert len(keys) == 4
    assert all(0 <= word < 2**32 for key in keys for word in key)
