"""The page of features, generated from the rows and their tests: ``python -m tests.features.table``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.features.rows import AREAS, ROWS

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "features.md"
ROW = re.compile(r'^pytestmark = pytest\.mark\.row\("(\w+)"\)$', re.MULTILINE)
HEAD = """# What the predecessors do, and what stepgraph does

Each row is one feature of a predecessor. If the row says what stepgraph does, a test module shows it on the backends
that the row names, with the predecessor's own numbers where they are known. This page is generated from the tests
(`python -m tests.features.table`).
"""


def make_page() -> str:
    """Return the page."""
    return "\n".join((HEAD, *(line for area in AREAS for line in _tell_area(area)))) + "\n"


def find_modules() -> Mapping[str, Path]:
    """Return the modules that show a row, by the row that they are marked with."""
    marked = ((ROW.search(path.read_text(encoding="utf-8")), path) for path in sorted(FOLDER.glob("test_*.py")))
    return {found[1]: path for found, path in marked if found}


def _tell_area(area: str) -> Iterator[str]:
    """Yield the lines of one predecessor."""
    yield f"## {AREAS[area]}\n"
    yield "| row | there | here | shown by | on |\n|---|---|---|---|---|"
    yield from (_tell_row(row) for row in ROWS if row[0] == area)
    yield ""


def _tell_row(row: str) -> str:
    """Return the line of one row."""
    path = find_modules().get(row)
    if path is None:
        return f"| {row} | {ROWS[row]} | not shown yet | | |"
    text = path.read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    backends = "both" if "backend: str" in text else "PyTorch"
    return f"| {row} | {ROWS[row]} | {said} | [{path.name}](../tests/features/{path.name}) | {backends} |"


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
