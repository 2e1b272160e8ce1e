"""Runs of the tests of conditions that met no trouble, to compare others with."""

from __future__ import annotations

import pytest

from tests.resilience.conditions import make, run

STREAM = (("trouble:Points", "trouble:Stream"), (", shuffle: true", ""))


def make_whole(folder, *changes):
    ended = run(make(folder, *changes))
    assert ended.code == 0, ended.output
    return folder / "out"


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Return the folder of a run that reads samples by number."""
    return make_whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="session")
def whole_stream(tmp_path_factory):
    """Return the folder of a run that reads batches one after another."""
    return make_whole(tmp_path_factory.mktemp("stream"), *STREAM)
