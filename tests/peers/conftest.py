"""Every case runs on every installed backend."""

from __future__ import annotations

import pytest

from tests.conformance.scenario import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of a backend."""
    return request.param
