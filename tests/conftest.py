"""What every test shares: one thread per process, no windows, quiet frameworks and reproducible property tests."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests.suite.graphs import rewrite_graphs

_STATE = tempfile.TemporaryDirectory(prefix="stepgraph-")  # what `--allow` is remembered in: not the user's own

# Read by the frameworks when they are first imported, here or in a subprocess. One thread, because the workers already
# use every core and because the number of threads changes the last bits of a float sum.
os.environ.update(
    MPLBACKEND="Agg",
    OMP_NUM_THREADS="1",
    STEPGRAPH_STATE=_STATE.name,
    TF_CPP_MIN_LOG_LEVEL="3",
    TF_ENABLE_ONEDNN_OPTS="0",  # as the backend sets it for users: here a test may import TensorFlow before it
    TF_NUM_INTEROP_THREADS="1",
    TF_NUM_INTRAOP_THREADS="1",
)

# No deadline: how long an example takes says nothing about its truth. In continuous integration a property is tried on
# the same examples every time.
settings.register_profile("repository", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("repository")

pytest_plugins = ("pytester", "tests.suite.frameworks", "tests.suite.sampling")


def pytest_collection_finish() -> None:
    """Leave what was imported out of every garbage collection: two frameworks have half a million objects that stay.

    TensorFlow takes graphs as they are traced: to rewrite one takes as long as a hundred small steps of it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    if "tensorflow" in sys.modules:
        rewrite_graphs(False)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty directory and return its path."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def strategies(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return the folder with what replicas of TensorFlow found, of one process and of two."""
    from tests.processes.strategies import RARE, SHOWN, finish, start
    from tests.suite.sampling import takes_all

    folder, left = tmp_path_factory.mktemp("strategies"), () if takes_all(request.config) else RARE
    shown = {kind: [name for name in names if name not in left] for kind, names in SHOWN.items()}
    finish(folder, {kind: start(folder, kind, names) for kind, names in shown.items()})
    return folder
