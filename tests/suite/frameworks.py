"""Where a framework is missing, its cases are deselected, and the end of a run says so: a plugin of pytest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.suite.imports import FRAMEWORKS, find_needed

NAMES = frozenset(FRAMEWORKS.values())
ROOT = Path(__file__).parents[2]


class LeftOut(pytest.Module):
    """A module that is not imported, as that would be an error."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Return nothing."""
        return []


class Missing:
    """Leaves out what needs a framework that is not installed, and counts it."""

    def __init__(self, missing: frozenset[str]) -> None:
        self.missing = missing
        self.modules: dict[str, str] = {}
        """The framework that a module lacks, by path."""
        self.cases: Counter[str] = Counter()
        """How many cases of the other modules lack a framework."""

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        """Leave a module empty that imports what is missing, also one that was asked for by name."""
        lacking = self.missing & find_needed(module_path, ROOT) if self.missing else frozenset[str]()
        if not lacking:
            return None
        self.modules[str(module_path)] = min(lacking)
        return LeftOut.from_parent(parent, path=module_path)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the cases that are marked with, or whose parameters name, what is missing."""
        lacking = {item: self.missing & find_wanted(item) for item in items}
        for gone in filter(None, lacking.values()):
            self.cases[min(gone)] += 1
        config.hook.pytest_deselected(items=[item for item in items if lacking[item]])
        items[:] = [item for item in items if not lacking[item]]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what was counted, where this is a worker of pytest-xdist."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["missing"] = [self.modules, dict(self.cases)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a worker counted: each of them collects everything, so their counts are the same."""
        counted = getattr(node, "workeroutput", {}).get("missing")  # a worker that crashed has none
        if counted is not None:
            self.modules, self.cases = counted[0], Counter(counted[1])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out, and why."""
        for line in self.lines():
            terminalreporter.write_line(line, yellow=True)

    def lines(self) -> list[str]:
        """Return a line for every framework that is missing."""
        modules = Counter(self.modules.values())
        return [tell(name, modules[name], self.cases[name]) for name in sorted(self.missing)]


def pytest_configure(config: pytest.Config) -> None:
    """Look once which frameworks are installed."""
    missing = frozenset(name for name in NAMES if find_spec(name) is None)
    config.pluginmanager.register(Missing(missing), "missing-frameworks")


def find_wanted(item: pytest.Item) -> frozenset[str]:
    """Return the frameworks that a case names: by the mark `needs`, or by a parameter.

    Raises UsageError if the mark names something else.
    """
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    if not marked <= NAMES:
        raise pytest.UsageError(f"{item.nodeid}: needs names {sorted(marked - NAMES)}, but knows {sorted(NAMES)}")
    return frozenset(marked) | NAMES.intersection(_find_texts(item))


def _find_texts(item: pytest.Item) -> Iterator[str]:
    """Yield the parameters of a case that are text."""
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        yield from (value for value in item.callspec.params.values() if isinstance(value, str))


def tell(name: str, modules: int, cases: int) -> str:
    """Return the line about one framework."""
    left_out = f"{modules:,} module{'s' * (modules != 1)} and {cases:,} case{'s' * (cases != 1)}"
    return f"{left_out} deselected: {name} is not installed"
