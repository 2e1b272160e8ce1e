"""Runs killed with SIGKILL at random moments end as if they had never been killed."""

from __future__ import annotations

import pytest

from tests.resilience.trials import NAMES, make_trial

pytestmark = pytest.mark.needs("torch")

KILLS = 3
"""For each spec; `make kills` does 50 of them."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.xdist_group("kills")
def test_a_killed_run_ends_as_if_it_had_not_been_killed(name, tmp_path):
    tally = make_trial(tmp_path, name, KILLS, seed=NAMES.index(name))
    assert tally.kills >= KILLS
    assert tally.differences == []
