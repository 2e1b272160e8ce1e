"""What plans for TensorFlow wait for, and which tapes they keep, is needed: without one of it a step goes wrong."""

from __future__ import annotations

from tests.conformance.execution import running
from tests.conformance.necessity import UNDO


def test_every_deferral_is_needed() -> None:
    with running(eagerly=True):
        found = UNDO["deferrals"](range(6))
    assert found.needless == []
    assert found.changed > 0


def test_every_tape_that_lasts_is_used_more_than_once() -> None:
    with running(eagerly=True):
        found = UNDO["tapes"](range(3))
    assert found.needless == []
    assert found.raised > 1
