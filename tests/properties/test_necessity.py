"""What the compiler decided is needed: without one deferral, or one retained graph, a step goes wrong."""

from __future__ import annotations

from tests.properties.necessity import undo_deferrals, undo_retains


def test_every_deferral_is_needed():
    found = undo_deferrals(range(40))
    assert found.needless == []
    assert found.raised + found.changed > 20
    assert found.raised + found.changed > 0.6 * found.tried


def test_every_retained_graph_is_needed():
    found = undo_retains(range(20))
    assert found.needless == []
    assert found.changed == 0
    assert found.raised > 15
