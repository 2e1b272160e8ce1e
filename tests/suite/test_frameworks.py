"""What needs a framework that is missing is deselected, and the last lines of a run say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.suite.frameworks import Missing, tell

TESTS = Path(__file__).parents[1]
MODULE = """
import pytest

def test_plain():
    pass

@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_each(backend):
    pass

@pytest.mark.needs("torch", "tensorflow")
def test_both():
    pass

@pytest.fixture(params=["torch", "tensorflow"])
def chosen(request):
    return request.param

def test_by_fixture(chosen):
    pass
"""
CONFTEST = """
from tests.suite.frameworks import Missing

def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*frameworks)")
    config.pluginmanager.register(Missing(frozenset({"tensorflow"})))
"""
WITHOUT = "import tensorflow\nimport nothing_of_this_name"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder of tests on a machine without TensorFlow; one module cannot be imported there."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_cases=MODULE, test_other=WITHOUT)
    return pytester


@pytest.mark.parametrize("workers", ["0", "1"])
def test_cases_and_modules_of_a_missing_framework_are_deselected(project: pytest.Pytester, workers: str) -> None:
    result = project.runpytest_inprocess("-n", workers)
    result.assert_outcomes(passed=3, deselected=0 if workers == "1" else 3)
    result.stdout.fnmatch_lines("1 module and 3 cases deselected: tensorflow is not installed")


def test_a_module_that_is_asked_for_by_name_is_left_out_too(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("-n", "0", "test_other.py")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines("1 module and 0 cases deselected: tensorflow is not installed")


def test_a_mark_that_names_no_framework_is_an_error(project: pytest.Pytester) -> None:
    project.makepyfile(test_cases="import pytest\n@pytest.mark.needs('jax')\ndef test():\n    pass")
    result = project.runpytest_inprocess("-n", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*test_cases.py::test: needs names *'jax'*, but knows *'tensorflow', 'torch'*")


def test_no_test_skips_where_the_mark_is_meant() -> None:
    skips = re.compile(r"importorskip\(['\"](?:torch|tensorflow|keras)")
    assert [path.name for path in TESTS.rglob("*.py") if skips.search(path.read_text(encoding="utf-8"))] == []


def test_where_both_are_installed_nothing_is_said() -> None:
    assert not Missing(frozenset()).lines()


def test_lines_tell_large_numbers_readably() -> None:
    assert tell("torch", 85, 1234) == "85 modules and 1,234 cases deselected: torch is not installed"
