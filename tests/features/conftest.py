"""Every feature is shown on every backend that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.scenario import BACKENDS
from tests.resilience.processes import call


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of a backend."""
    return request.param


@pytest.fixture(scope="session")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with what two processes found."""
    from tests.features.replicas import main

    path = tmp_path_factory.mktemp("replicas")
    ended = call(main, path)
    assert ended.code == 0, ended.output[-4000:]
    return path


@pytest.fixture
def shown(backend: str, request: pytest.FixtureRequest) -> Path:
    """Return the folder with what two processes of a backend found."""
    return request.getfixturevalue("replicas" if backend == "torch" else "strategies")
