"""docs/notebooks: every notebook runs, and shows what it shows in its file."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from tests.docs.notebooks import NOTEBOOKS, ROOT, VARIES, execute, list_texts, read, tidy

pytestmark = pytest.mark.xdist_group("notebooks")  # one after another: each starts a process that uses a core
EACH = pytest.mark.parametrize("name", NOTEBOOKS)
LARGEST = 200_000
FOREIGN = re.compile(r"/(?:home|root|tmp|usr|work)/|\bipykernel|\b\d+(?:\.\d+)? ?(?:ms|s|seconds)\b|\bat 0x")
"""Paths, times and addresses, which are others on another machine."""


@pytest.mark.sample(3)
@EACH
@pytest.mark.needs("torch")
def test_a_notebook_shows_what_its_cells_give(name: str) -> None:
    """If this fails and the new outputs are right: python -m tests.docs.notebooks."""
    kept = read(NOTEBOOKS[name])
    assert list_texts(execute(kept)) == list_texts(kept)


@EACH
def test_a_notebook_is_small_and_has_nothing_of_one_machine(name: str) -> None:
    text, kept = NOTEBOOKS[name].read_text(encoding="utf-8"), read(NOTEBOOKS[name])
    assert len(text.encode()) < LARGEST
    assert text == nbformat.writes(tidy(read(NOTEBOOKS[name]))) + "\n"
    for cell in kept.cells:
        cell.metadata = {}  # those that vary count, too
    shown = [told for texts in list_texts(kept).values() for kind, told in texts if kind != "text/html"]
    assert shown
    assert [found[0] for told in shown for found in FOREIGN.finditer(told)] == []


@EACH
def test_a_notebook_is_shown_whole_and_little_of_it_varies(name: str) -> None:
    cells = [cell for cell in read(NOTEBOOKS[name]).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum(VARIES in cell.metadata.get("tags", ()) for cell in cells) <= 2


@EACH
def test_a_notebook_begins_with_its_title_and_its_other_headings_are_below(name: str) -> None:
    prose = [cell.source for cell in read(NOTEBOOKS[name]).cells if cell.cell_type == "markdown"]
    assert prose[0].startswith("# ")
    levels = [len(found) for text in prose for found in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert {*levels[1:]} == {2}


def test_the_index_names_every_notebook() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in NOTEBOOKS if f"(notebooks/{name}.ipynb)" not in index] == []


def test_an_error_in_a_cell_is_raised_and_a_cell_that_varies_is_not_compared() -> None:
    cells = [new_code_cell("print(1)"), new_code_cell("print(2)", metadata={"tags": [VARIES]})]
    assert list_texts(execute(new_notebook(cells=cells))) == {"cell-01": [("stdout", "1\n")]}
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(new_notebook(cells=[new_code_cell("1 / 0")]))
