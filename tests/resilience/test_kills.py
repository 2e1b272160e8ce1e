"""Runs that are killed, asked to end, or left without room on the disk end as if that had never happened."""

from __future__ import annotations

import pytest

from tests.resilience.processes import apart
from tests.resilience.trials import NAMES, make_trial

KILLS = 3
"""For each spec; `make kills` does 50 of them."""

pytestmark = pytest.mark.xdist_group("kills")


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.needs("torch")
def test_a_run_that_is_hit_ends_as_if_it_had_not_been_hit(name, tmp_path):
    tally = apart("torch", make_trial, tmp_path, name, KILLS, NAMES.index(name))
    assert tally.kills >= KILLS
    assert tally.differences == []
