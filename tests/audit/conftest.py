"""What the tests of audited programs share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def settled() -> None:
    """Leave what other tests made out of an audit, which searches all objects that Python tracks."""
    gc.collect()
    gc.freeze()
