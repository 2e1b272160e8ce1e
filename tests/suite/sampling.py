"""What every run takes of the cases: all, but for tests whose many cases take long. The long set takes these whole.

TensorFlow takes long to trace a graph. Of tests that run on both backends every run takes the TensorFlow case of every
24th in a file, the first one always; of the cases of a test of that backend alone every third.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

OPTION = "--every-case"
TENSORFLOW = Path(__file__).parents[1] / "backends" / "tensorflow"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves nothing out."""
    parser.addoption(OPTION, action="store_true", help="run all cases of tests that are marked `sample` or `long`")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases that run on TensorFlow."""
    given = getattr(item, "callspec", None)
    if given is None or item.get_closest_marker("sample") is not None:
        return
    if given.params.get("backend") == "tensorflow":
        item.add_marker(pytest.mark.sample(24, among=item.path))
    elif TENSORFLOW in item.path.parents:
        item.add_marker(pytest.mark.sample(3))


def takes_all(config: pytest.Config) -> bool:
    """Return whether a run leaves nothing out."""
    return config.getoption(OPTION) or any("::" in each for each in config.args)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is marked `long`, and all but every n-th case of what is marked `sample(n)`.

    These are the cases of one test, but for those among which a mark counts its own. A test that is asked for by its
    name runs whole.
    """
    if takes_all(config):
        return
    seen = Counter[object]()
    kept, left = [], []
    for item in items:
        mark = next(item.iter_markers("sample"), pytest.mark.sample(1).mark)
        among = mark.kwargs.get("among", getattr(item, "function", item))
        is_taken = item.get_closest_marker("long") is None and seen[among] % mark.args[0] == 0
        (kept if is_taken else left).append(item)
        seen[among] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept
