"""What plans for TensorFlow wait for, and which tapes they keep, is needed: without one of it a step goes wrong."""

from __future__ import annotations

from tests.conformance.execution import running
from tests.conformance.necessity import UNDO

DEFERRING, LASTING = (3, 13), (1, 5)
"""Seeds with something to undo; the long set tries all of the first 40."""


def test_every_deferral_is_needed() -> None:
    with running(eagerly=True):
        found = UNDO["deferrals"](DEFERRING)
    assert found.needless == []
    assert found.changed > 1


def test_every_tape_that_lasts_is_used_more_than_once() -> None:
    with running(eagerly=True):
        found = UNDO["tapes"](LASTING)
    assert found.needless == []
    assert found.raised > 2
