"""The time that tests take is told by area, with a word where it is more than the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.areas import Area, find_area, make_table
from tests.suite.budgets import BUDGETS, CORES, MINUTES

TESTS = Path(__file__).parents[1]
CONFTEST = """
import itertools
from tests.suite.areas import Areas

def pytest_configure(config):
    config.pluginmanager.register(Areas(itertools.count().__next__))  # every phase takes a second
"""


def test_every_folder_with_tests_has_a_budget() -> None:
    assert {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} == BUDGETS.keys()


def test_the_budgets_keep_to_what_the_suite_may_take() -> None:
    assert sum(BUDGETS.values()) <= CORES * MINUTES * 60


@pytest.mark.parametrize(
    ("nodeid", "area"),
    [
        ("tests/cli/test_run.py::test_a[b/c::d]", "cli"),
        ("tests/a/b/test_c.py::test", "a"),
        ("test_c.py::test", "test_c.py"),
    ],
)
def test_an_area_is_a_folder_of_tests(nodeid: str, area: str) -> None:
    assert find_area(nodeid) == area


def test_the_table_says_in_a_word_which_area_is_over_its_budget() -> None:
    areas = {"cli": Area(tests=1200, clock=61.25, processor=30.5), "docs": Area(tests=7, clock=2, processor=2)}
    assert list(make_table(areas, {"cli": 50, "docs": 2, "golden": 9})) == [
        "area             tests   seconds    of CPU    budget",
        "cli              1,200      61.2      30.5        50  over budget",
        "docs                 7       2.0       2.0         2",
        "all              1,207      63.2      32.5        52  over budget",
    ]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_ends_with_the_table_wherever_its_tests_ran(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeconftest(CONFTEST)
    text = "import pytest\n\ndef test():\n    pass\n\ndef test_left_out():\n    pytest.skip('why not')"
    for area in ("cli", "docs"):
        place = pytester.mkdir(area) / f"test_{area}.py"
        place.write_text(text)
    lines = pytester.runpytest_inprocess("-n", workers).outlines
    rows = [line.split() for line in lines[lines.index("area             tests   seconds    of CPU    budget") :]]
    found = [(name, tests, processor) for name, tests, _, processor, *_ in rows[1:4]]
    assert found == [("cli", "2", "6.0"), ("docs", "2", "6.0"), ("all", "4", "12.0")]
