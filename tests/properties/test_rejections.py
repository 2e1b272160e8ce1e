"""What is wrong is rejected, with the code that says so and no other."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from graphspec.diagnostics import SpecError
from tests.properties.plans import plan_of
from tests.properties.rejections import MISTAKES, random_rejected, sound_pair
from tests.properties.specs import random_spec

COUNT = 150
"""So many specs with a mistake are drawn."""


def codes(document: dict) -> set[str]:
    try:
        plan_of(document)
    except SpecError as error:
        return {one.code for one in error.diagnostics if one.severity == "error"}
    return set()


@pytest.mark.parametrize("each", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_mistake_in_a_random_spec_is_told_by_its_code_alone(each):
    """Of the specs with the same mistake so many are tried."""
    tried: Counter[str] = Counter()
    for seed in range(COUNT):
        document, mistake = random_rejected(Random(seed))
        if tried[mistake] == each:
            continue
        expected = mistake.partition(" ")[0]
        found, others = codes(document), codes(without(document, random_spec(Random(seed))))
        if found == {"E-TWO-VERSIONS"} == others or (expected, found) == ("E-TWO-VERSIONS", {"E-SKIP-SCOPE"}):
            continue  # what is only known of a schedule is not looked at
        assert expected in found, (seed, mistake)
        assert found <= {expected, *others}, (seed, mistake)
        tried[mistake] += 1
    assert set(tried) == set(MISTAKES)


def without(document: dict, sound: dict) -> dict:
    """Return a spec without its mistake, listed as it is with it: the order of forwards with buffers has a meaning."""
    return {**sound, "ops": {name: op for name, op in document["ops"].items() if name in sound["ops"]}}


def test_without_the_mistake_the_parts_are_accepted():
    models, ops = sound_pair()
    shape = {"shape": ["batch", 3]}
    document = {"graphspec": 1, "name": "sound", "inputs": {"p": shape, "q": shape}, "models": models, "ops": ops}
    assert codes(document) == set()
