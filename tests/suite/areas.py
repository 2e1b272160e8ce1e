"""The time that tests take by area, as a table behind the last test of a run: a plugin of pytest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.suite.budgets import BUDGETS

ROW = "{:<14}{:>8}{:>10}{:>10}{:>10}  {}"


@dataclass(kw_only=True)
class Area:
    """What the tests of one folder took so far, in seconds: on the clock, and of processors, children included."""

    tests: int = 0
    clock: float = 0.0
    processor: float = 0.0


class Areas:
    """Measures every phase of a test where it runs, and adds up where the reports arrive."""

    def __init__(self, read: Callable[[], float]) -> None:
        self.by_name: dict[str, Area] = {}
        self._read, self._since = read, 0.0

    def pytest_runtest_logstart(self) -> None:
        """Begin to count, so that what lies between two tests counts for none."""
        self._since = self._read()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Write into the report what the phase took; pytest-xdist carries it along."""
        report = yield
        now = self._read()
        report.processor, self._since = now - self._since, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a phase took to its area."""
        area = self.by_name.setdefault(find_area(report.nodeid), Area())
        area.tests += report.when == "setup"
        area.clock += report.duration
        area.processor += getattr(report, "processor", 0.0)  # a test whose worker crashed has none

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, if there is something to compare."""
        if len(self.by_name) > 1:
            terminalreporter.section("time by area")
            for line in make_table(self.by_name, BUDGETS):
                terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Measure this run."""
    config.pluginmanager.register(Areas(read_processor), "areas")


def find_area(nodeid: str) -> str:
    """Return the folder below tests/ that a test lies in."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else parts[0]


def make_table(areas: Mapping[str, Area], budgets: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of the table: the areas by name, and their sum beside the budgets of those areas."""
    yield ROW.format("area", "tests", "seconds", "of CPU", "budget", "").rstrip()
    for name in sorted(areas):
        yield _tell(name, areas[name], budgets.get(name, 0))
    yield _tell("all", _add(areas), sum(budgets.get(name, 0) for name in areas))


def _tell(name: str, area: Area, budget: int) -> str:
    verdict = "over budget" if area.clock > budget else ""
    return ROW.format(name, f"{area.tests:,}", f"{area.clock:.1f}", f"{area.processor:.1f}", budget, verdict).rstrip()


def _add(areas: Mapping[str, Area]) -> Area:
    every = areas.values()
    return Area(
        tests=sum(area.tests for area in every),
        clock=sum(area.clock for area in every),
        processor=sum(area.processor for area in every),
    )


def read_processor() -> float:
    """Return the seconds of processors that this process took, and its children that have ended."""
    return sum(os.times()[:4])
