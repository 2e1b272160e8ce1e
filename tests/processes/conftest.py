"""What the tests of replicas share: real processes that train all cases, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resilience.processes import call
from tests.suite.sampling import takes_all


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return the folder with what all processes found."""
    from tests.processes.worker import start_all, start_some

    path = tmp_path_factory.mktemp("replicas")
    ended = call(start_all if takes_all(request.config) else start_some, path)
    assert ended.code == 0, ended.output[-4000:]
    return path
