"""What the tests of audited programs share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def settled() -> None:
    """Leave what tests before have imported and made out of an audit: it searches all objects that Python tracks."""
    gc.collect()
    gc.freeze()
