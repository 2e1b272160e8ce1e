"""Random specs, captured as graphs, have the oracle's numbers and those of eager steps."""

from __future__ import annotations

import pytest

from tests.properties.captured import judge_specs, try_specs
from tests.properties.specs import overflow_spec


def test_random_specs_as_graphs_have_the_numbers_of_the_oracle():
    tally = judge_specs(range(2))
    assert not tally.mismatches
    assert tally.graphs >= 4


def test_random_specs_with_overflows_as_graphs_have_the_numbers_of_the_oracle():
    tally = judge_specs(range(103, 105), overflow_spec)
    assert not tally.mismatches
    assert tally.graphs >= 4


@pytest.mark.long
def test_random_specs_are_the_same_as_graphs():
    tally = try_specs(range(20))
    assert not tally.mismatches
    assert tally.graphs >= 20
    tally = judge_specs(range(100, 120), overflow_spec)
    assert not tally.mismatches
    assert tally.graphs >= 20


@pytest.mark.long
def test_random_specs_are_the_same_as_recordings():
    tally = try_specs(range(3000, 3012), recorded=True)
    assert not tally.mismatches
    assert tally.recorded >= 10
