"""Every feature is shown on every backend that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.scenario import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of a backend."""
    return request.param


@pytest.fixture(scope="session")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with what two processes found."""
    path = tmp_path_factory.mktemp("replicas")
    command = [sys.executable, "-m", "tests.features.replicas", str(path)]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return path


@pytest.fixture
def shown(backend: str, request: pytest.FixtureRequest) -> Path:
    """Return the folder with what two processes of a backend found."""
    return request.getfixturevalue("replicas" if backend == "torch" else "strategies")
