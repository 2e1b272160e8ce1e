"""The rule of FastEstimator errs on random specs, and only where a gradient still reads what it writes."""

from __future__ import annotations

import pytest

from tests.properties.contiguous import OUTCOMES, find_broken, find_plans, try_plans

pytestmark = pytest.mark.xdist_group("contiguous")  # one worker, so that the specs are tried once
SEEDS = (*range(1, 9), *range(16, 20), 69, 98)
"""Twelve random specs, and two that come out wrong without an error whatever writes the weights."""


@pytest.fixture(scope="module")
def tried():
    return list(try_plans(find_plans(SEEDS)))


def test_every_outcome_occurs(tried):
    default, fused = ({one.outcomes[name] for one in tried} for name in ("default", "fused"))
    assert default == fused == set(OUTCOMES)


def test_fused_optimizers_turn_errors_into_wrong_numbers(tried):
    turned = [one for one in tried if one.outcomes == {"default": "raises", "fused": "silently wrong"}]
    assert len(turned) >= 2


def test_what_goes_wrong_is_what_a_gradient_still_reads(tried):
    wrong = [one for one in tried if set(one.outcomes.values()) != {"right"}]
    assert all(any(find_broken(one.plan)) for one in wrong)
