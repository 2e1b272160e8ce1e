"""Patterns of steps, beside loops by hand on one process; what wrappers make of such loops is on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.cases import REPLICATED, SHARDED, found
from tests.processes.patterns.table import MOST, OURS, PATTERNS, find_gap, find_truth, read_page

pytestmark = pytest.mark.xdist_group("replicas")  # one worker starts the processes


@pytest.mark.parametrize("number", range(len(PATTERNS)), ids=lambda number: PATTERNS[number].title)
def test_processes_have_the_weights_of_a_loop_on_all_rows(folder: Path, number: int) -> None:
    truth, moved = find_truth(PATTERNS[number])
    assert moved > 0.01
    for run in (REPLICATED, SHARDED):
        for part in found(folder, f"pattern {number}", run):
            assert find_gap(part, truth) <= MOST


def test_the_page_lists_the_patterns_and_ours_is_right() -> None:
    assert {title: cells[OURS] for title, cells in read_page().items()} == {each.title: "right" for each in PATTERNS}
