"""What every run takes of the cases: all, but for tests whose many cases take long. The long set takes these whole.

On TensorFlow every run takes every second case of a test, the first one always.
"""

from __future__ import annotations

from collections import Counter

import pytest

OPTION = "--every-case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves nothing out."""
    parser.addoption(OPTION, action="store_true", help="run all cases of tests that are marked `sample` or `long`")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what runs on TensorFlow, which takes long to trace a graph: of a test with many such cases, every second."""
    if is_on_tensorflow(item) and item.get_closest_marker("sample") is None:
        item.add_marker(pytest.mark.sample(2))


def is_on_tensorflow(item: pytest.Item) -> bool:
    """Return whether a case has TensorFlow for its backend."""
    given = getattr(item, "callspec", None)
    return given is not None and given.params.get("backend") == "tensorflow"


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
        test = getattr(item, "function", item), is_on_tensorflow(item)
        (kept if is_taken(item, seen[test]) else left).append(item)
        seen[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def is_taken(item: pytest.Item, number: int) -> bool:
    """Return whether every run takes a case, which is given with its number among those of its test."""
    every = next((mark.args[0] for mark in item.iter_markers("sample")), 1)
    return item.get_closest_marker("long") is None and number % every == 0
