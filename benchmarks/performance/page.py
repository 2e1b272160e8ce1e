"""The tables in docs/performance.md: what is between two markers is written from the record, the rest by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.performance.record import RESULTS
from benchmarks.performance.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
MARKED = re.compile(
    r"^<!-- (?P<name>[\w-]+): begin -->\n(?P<table>.*?)^<!-- (?P=name): end -->$", re.MULTILINE | re.DOTALL
)


def renew(page: Path = PAGE, folder: Path = RESULTS) -> None:
    """Write the tables of a page from the records of a folder."""
    tables = {name: table.render(folder) for name, table in TABLES.items()}
    page.write_text(fill(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def fill(text: str, tables: Mapping[str, str]) -> str:
    """Return the text of a page with its tables in the place of what is between their markers.

    Raises ValueError where the page lacks one, or has another.
    """
    names = [found["name"] for found in MARKED.finditer(text)]
    if sorted(names) != sorted(tables):
        raise ValueError(f"the page has the tables {', '.join(names)}, and the record {', '.join(tables)}")
    return MARKED.sub(lambda found: mark(found["name"], tables[found["name"]]), text)


def mark(name: str, table: str) -> str:
    """Return a table between its markers; the empty lines let it be one for every reader of Markdown."""
    return f"<!-- {name}: begin -->\n\n{table}\n\n<!-- {name}: end -->"
