"""What the compiler decided is needed: without one deferral, or one retained graph, a step goes wrong."""

from __future__ import annotations

import pytest

from tests.properties.necessity import Ground, undo_deferrals, undo_retains
from tests.properties.plans import plan_of
from tests.properties.special_language import WAITING
from tests.properties.special_overflow import OVERFLOWING

SEEDS = range(1, 7)
"""Without the first, which has as much to undo as all of these together; the long set begins with it."""


def test_every_deferral_is_needed():
    found = undo_deferrals(SEEDS)
    assert found.needless == []
    assert found.raised + found.changed > 8
    assert found.raised + found.changed + found.planted > 0.6 * (found.tried - found.unmet)


def test_every_verdict_that_is_awaited_is_needed():
    def plan(name, order):
        return plan_of(OVERFLOWING[name], order)

    found = undo_deferrals(OVERFLOWING, ground=Ground(plan=plan, plan_for_torch=plan))
    assert found.needless == []
    assert found.planted > 4


@pytest.mark.parametrize("case", WAITING)
def test_what_waits_in_a_part_or_behind_a_derived_model_has_to(case):
    def plan(name, order):
        return plan_of(WAITING[name], order)

    found = undo_deferrals([case], ground=Ground(plan=plan, plan_for_torch=plan))
    assert found.tried == (2 if "repeat" in repr(WAITING[case]["ops"]) else 1)
    assert found.raised + found.changed == found.tried


def test_every_retained_graph_is_needed():
    found = undo_retains(SEEDS)
    assert found.needless == []
    assert found.changed == 0
    assert found.raised > 15
