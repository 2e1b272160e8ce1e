"""What every run takes of the cases: all, but for tests whose many cases take long. The long set takes these whole."""

from __future__ import annotations

from collections import Counter

import pytest

OPTION = "--every-case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves nothing out."""
    parser.addoption(OPTION, action="store_true", help="run all cases of tests that are marked `sample` or `long`")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is marked `long`, and of a test that is marked `sample(n)` all but every n-th case.

    A test that is asked for by its name runs whole.
    """
    if config.getoption(OPTION) or any("::" in each for each in config.args):
        return
    seen = Counter[object]()
    kept, left = [], []
    for item in items:
        test = getattr(item, "function", item)
        (kept if is_taken(item, seen[test]) else left).append(item)
        seen[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def is_taken(item: pytest.Item, number: int) -> bool:
    """Return whether every run takes a case, which is given with its number among those of its test."""
    every = next((mark.args[0] for mark in item.iter_markers("sample")), 1)
    return item.get_closest_marker("long") is None and number % every == 0
