"""Patterns are found where Python finds them, and in a bounded time whatever they are."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from msgspec.structs import replace

from graphspec.declare.matching import LONGEST_PATTERN, UnmatchableError, is_found, read_pattern
from graphspec.diagnostics import SpecError
from graphspec.loading import load

NAMES = (
    "", "0.weight", "12.bias", "encoder.layers.3.attn.q_proj.weight", "norm.weight\n", "Head.0.Bias", "aab", "ab" * 40,
    "größe", "a.b.c.d.e",
)  # fmt: skip
PATTERNS = (
    "", "bias$", "^0[.]", "^(?!head)", r"^(?!.*bias$)", "(?i)head", r"(?i:HEAD)\.0", r"\bbias\b", r"\Bias", r"weight\Z",
    "(?<=0)[.]w", r"(?<!\d)[.]", "(a|b)*c", "((a+)+)+$", "(a*)*$", "(?:.?){12}b", r"(\w+\.)*bias",
    r"^(\w+\.)+norm\d*\.weight$", "[^a-z]", r"[\d_]+[^\W]", "a{2}b", "(ab){3,}", "(ab){0,2}$", "x|y|weight|", "(?s).",
    ".", "[]a]", r"[\-x]", "ö", "(?m)^$", "(a|(b|(c|.)))*?d", "(?=.*b)(?=.*a)", "(?!(?!a))", r"\.",
    "[.]{2}|q.*p.*w.*t.*",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_found_where_python_finds_it(pattern):
    read = read_pattern(pattern)
    for name in NAMES:
        alone = replace(read, has_few_ways=False).is_found(name)
        assert alone == read.is_found(name)
        if len(name) <= 16:
            assert alone == bool(re.search(pattern, name))


def make(draws: random.Random, depth: int) -> str:
    """Return a random pattern."""
    if depth == 0:
        return draws.choice(
            ("a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$", r"\.", "", "(?!a)", "(?<=b)", "(?=.b)")
        )
    parts = [make(draws, depth - 1) for _ in range(draws.choice((1, 2, 2, 3)))]
    whole = draws.choice(("", "|")).join(parts)
    return draws.choice(
        (whole, f"(?:{whole})", f"({whole}){draws.choice(('*', '+', '?', '{1,2}', '{2}', '*?', '{2,}'))}")
    )


def test_random_patterns_are_found_where_python_finds_them():
    draws, met = random.Random(5), 0
    for _ in range(400):
        pattern = make(draws, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = replace(read_pattern(pattern), has_few_ways=False)
            for _ in range(4):
                name = "".join(draws.choices("ab.", k=draws.randrange(7)))
                found = read.is_found(name)
                met += found
                assert found == bool(re.search(pattern, name)), (pattern, name)
    assert 300 < met < 1_500


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "a reference to a group"),
        ("(a)?(?(1)b|c)", "a condition on a group"),
        ("(?>a)b", "an atomic group"),
        ("a++b", "a possessive repeat"),
        ("a" * (LONGEST_PATTERN + 1), "more than 1,000 characters"),
        ("((a{1,100}){1,100}){1,100}", "more than 5,000 places"),
    ],
)
def test_what_cannot_be_bounded_is_refused(pattern, why):
    with pytest.raises(UnmatchableError, match=why):
        read_pattern(pattern)
    net = f"{{parameter: {{shape: []}}, groups: [{{match: '{pattern}', frozen: true}}]}}"
    text = f"graphspec: 1\nname: a\nmodels:\n  net: {net}\n"
    with pytest.raises(SpecError, match=rf"error\[GS060\].*{why}"):
        load(text)


@pytest.mark.parametrize(
    "pattern", ["(?:.?){60}!", "(((a+)+)+)+$", "(.*)*(.*)*(.*)*!", "(a|a|b|ab)*!", r"(?=(a*)*!)a", r"^(\w*\w*\w*)*!"]
)
def test_patterns_with_ever_so_many_ways_take_no_time(pattern):
    assert not is_found(pattern, "ab" * 100)
