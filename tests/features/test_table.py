"""The page of features is what the tests say."""

from __future__ import annotations

import ast
import re

from tests.features.rows import ROWS
from tests.features.table import FOLDER, PAGE, make_page

ROW = re.compile(r"test_[a-z]\d+\.py")
"""How the module of a row is called; others have names in words."""


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "run `python -m tests.features.table`"


def test_every_module_of_a_row_is_named_after_one() -> None:
    rows = {f"test_{row.lower()}.py" for row in ROWS}
    assert {path.name for path in FOLDER.glob("test_*.py") if ROW.fullmatch(path.name)} - rows == set()


def test_every_module_says_in_one_sentence_what_is_done_here() -> None:
    for path in FOLDER.glob("test_*.py"):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert said.splitlines()[0].endswith("."), path.name
