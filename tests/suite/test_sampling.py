"""Every run takes all cases but those that are left to the long set, which takes each of them."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

@pytest.mark.parametrize("case", range(5))
def test_whole(case): pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("case", range(7))
def test_wide(case): pass

@pytest.mark.long
def test_slow(): pass

@pytest.mark.parametrize("case", [0, pytest.param(1, marks=pytest.mark.long)])
def test_one_slow_case(case): pass

@pytest.mark.parametrize("case", range(24))
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_both(backend, case): pass

@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_both_once(backend): pass
"""
TORCH, TENSORFLOW = ([f"test_both[{backend}-{case}]" for case in range(24)] for backend in ("torch", "tensorflow"))
ONCE = ["test_both_once[torch]", "test_both_once[tensorflow]"]
"""The 25th case on TensorFlow: of 24, the first is taken."""
WHOLE = [f"test_whole[{case}]" for case in range(5)]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        (
            (),
            [
                *WHOLE,
                *(f"test_wide[{case}]" for case in (0, 3, 6)),
                "test_one_slow_case[0]",
                *TORCH,
                TENSORFLOW[0],
                *ONCE,
            ],
        ),
        (("-k", "wide"), [f"test_wide[{case}]" for case in (0, 3, 6)]),
        (("test_cases.py::test_wide[4]", "test_cases.py::test_slow"), ["test_wide[4]", "test_slow"]),
        (
            ("--every-case", "-m", "sample or long"),
            [*(f"test_wide[{case}]" for case in range(7)), "test_slow", "test_one_slow_case[1]", *TENSORFLOW, ONCE[1]],
        ),
    ],
    ids=["every run", "by word", "by name", "the long set"],
)
def test_what_is_taken(pytester: pytest.Pytester, options: tuple[str, ...], taken: list[str]) -> None:
    pytester.makeconftest('pytest_plugins = ["tests.suite.sampling"]')
    pytester.makeini("[pytest]\nmarkers =\n  sample(n)\n  long\n")
    pytester.makepyfile(test_cases=TESTS)
    result = pytester.runpytest_inprocess("--collect-only", "-q", "-p", "no:cacheprovider", *options)
    found = [line.partition("::")[2] for line in result.outlines if "::" in line]
    assert found == taken
