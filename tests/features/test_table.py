"""The page of features is what the tests say."""

from __future__ import annotations

import ast

from tests.features.rows import ROWS
from tests.features.table import FOLDER, PAGE, ROW, find_modules, make_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "run `python -m tests.features.table`"


def test_every_row_that_is_shown_is_one_and_is_shown_by_one_module() -> None:
    marks = [row for path in FOLDER.glob("test_*.py") for row in ROW.findall(path.read_text(encoding="utf-8"))]
    assert set(marks) <= set(ROWS)
    assert len(marks) == len(set(marks)) == len(find_modules())


def test_every_module_says_in_one_sentence_what_is_done_here() -> None:
    for path in FOLDER.glob("test_*.py"):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert said.splitlines()[0].endswith("."), path.name
