"""Joined calls and gradients of random specs give what the oracle says, which makes one for each op."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random

import pytest

from compiler import compile_step
from compiler.passes import join
from graphspec import SpecError
from graphspec.loading import load
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import Tally, try_spec
from tests.properties.plans import PACE
from tests.properties.sharing import sharing_spec
from tests.properties.specs import random_spec
from tests.properties.twins import add_twins


@pytest.fixture(autouse=True)
def _joins_all(monkeypatch):
    """Join what may be joined, also where it is no faster."""
    monkeypatch.setattr(join, "LEAST_LAYERS", 1)


def find_joined(document, kind):
    """Return the ops whose calls, or gradients, are joined in some step; None where the document is refused."""
    try:
        plan = compile_step(load(json.dumps(document) + "\n"), pace=PACE)
    except SpecError:
        return None
    functions = (function for mode in plan.program.modes for function in mode.functions)
    instructions = [each for function in functions for each in function.instructions]
    return {each.ops for each in instructions if each.kind() == kind and len(each.ops) > 1}


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", range(240))
def test_joined_calls_agree_with_the_oracle(seed):
    """Every spec is that of a seed with a twin for each of its plain calls."""
    document = add_twins(random_spec(Random(seed)))
    with suppress(DegenerateError):
        assert try_spec(document, ["fewest"], Tally()) == ""


def test_many_of_these_specs_join_calls():
    """Otherwise the comparison would say little."""
    found = [find_joined(add_twins(random_spec(Random(seed))), "forward") for seed in range(0, 240, 16)]
    assert sum(bool(each) for each in found) >= 5


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", range(480))
def test_joined_gradients_agree_with_the_oracle(seed):
    """Every spec has updates whose losses are sums of the same terms."""
    with suppress(DegenerateError):
        assert try_spec(sharing_spec(Random(seed)), ["fewest"], Tally()) == ""


def test_many_of_these_specs_join_gradients():
    """Otherwise the comparison would say little; the others are for the cases that only look alike."""
    found = [find_joined(sharing_spec(Random(seed)), "gradient") for seed in range(0, 480, 16)]
    assert None not in found
    assert 12 <= sum(bool(each) for each in found) <= 24
