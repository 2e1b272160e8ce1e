"""Random specs, captured as graphs, equal eager steps."""

from __future__ import annotations

import pytest

from tests.properties.captured import try_specs


@pytest.mark.long
def test_random_specs_are_the_same_as_graphs():
    tally = try_specs(range(20))
    assert not tally.mismatches
    assert tally.graphs >= 20
