"""docs/api.md is what the docstrings say, names everything that the packages export, and its examples run."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest

import compiler
import graphspec
import runtime
from tests.docs.reference import PAGE, ROOT, SECTIONS, find_bare, find_examples, name_part, write_page

API = {name_part(part): part for section in SECTIONS for part in section.parts}
BETWEEN = {"NO_TERMS", "Observations", "Observed", "OwnTerms", "Program"}
"""What backends and the compiler exchange."""


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "run `python -m tests.docs.reference`"


def test_the_page_has_everything_that_the_packages_export() -> None:
    exported = {name for package in (graphspec, compiler, runtime) for name in package.__all__}
    assert exported - BETWEEN <= API.keys()


def test_every_function_class_and_method_has_an_example() -> None:
    assert [name for part in API.values() for name in find_bare(part)] == []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("part", [pytest.param(part, id=name) for name, part in API.items() if find_examples(part)])
def test_its_examples_run(part: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shared: dict[str, object] = {}
    for each in find_examples(part):
        each.globs = shared
        assert doctest.DocTestRunner().run(each, clear_globs=False).failed == 0
