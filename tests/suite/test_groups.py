"""Tests of one group run on one worker, so that what they share is made once: not so where versions do not match."""

from __future__ import annotations

import pytest

MODULE = """
import os
import pytest

@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("number", range(4))
def test_grouped(number):
    with open("workers.txt", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""


def test_tests_of_one_group_run_on_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE)
    pytester.runpytest_inprocess("-n", "2", "--dist", "loadgroup").assert_outcomes(passed=4)
    workers = (pytester.path / "workers.txt").read_text(encoding="utf-8").split()
    assert len(workers) == 4
    assert len(set(workers)) == 1
