"""Generated indexes of folders with many pages: the codes of messages, and the decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Group:
    """A heading of an index and which names stand under it."""

    heading: str
    holds: Callable[[str], bool]


def _numbered(low: int, high: int) -> Callable[[str], bool]:
    def is_between(code: str) -> bool:
        """Return whether a code is a number of a range."""
        return code.startswith("GS") and low <= int(code[2:]) <= high

    return is_between


GROUPS = (
    Group("What cannot be scheduled as it is written", lambda code: code.startswith("E-")),
    Group("Warnings", lambda code: code.startswith("W-")),
    Group("The text of a spec", _numbered(1, 39)),
    Group("Single fields", _numbered(40, 99)),
    Group("Declarations that do not fit each other", _numbered(100, 199)),
    Group("Builds, runs, data, checkpoints and commands", _numbered(200, 999)),
)
"""The codes by what finds the problem, those of the compiler first; the ranges are those of add-a-diagnostic.md."""

FILTER = '<input class="filter" type="search" placeholder="Filter by code or word" aria-label="Filter" hidden>'
"""Its script is assets/stepgraph/filter.js of the theme, which shows it."""


def read_titles(folder: Path) -> dict[str, str]:
    """Return the headings of the pages of a folder by their names, without what stands before the colon."""
    pages = {path.stem: path.read_text(encoding="utf-8").partition("\n")[0] for path in sorted(folder.glob("*.md"))}
    return {name: heading.partition(": ")[2] for name, heading in pages.items()}


def write_errors(titles: Mapping[str, str]) -> str:
    """Return the index of the codes; raise ValueError for a code of no group."""
    text = "# Errors and warnings\n\nEvery problem that stepgraph reports has a code, and every code a page. "
    text += f"`stepgraph explain GS104` prints the page of a code.\n\n{FILTER}\n\n"
    rest = dict(titles)
    for group in GROUPS:
        rows = [f"| [{code}]({code}.md) | {_in_table(rest.pop(code))} |\n" for code in titles if group.holds(code)]
        text += f"## {group.heading}\n\n| code | meaning |\n|---|---|\n{''.join(rows)}\n"
    if rest:
        raise ValueError(f"codes that belong to no group of the index: {', '.join(rest)}")
    return text


def write_decisions(titles: Mapping[str, str]) -> str:
    """Return the index of the decisions."""
    text = "# Decisions\n\nWhy stepgraph is built as it is: a page for each decision, with what was weighed.\n\n"
    rows = (f"| {name[:4]} | [{title}]({name}.md) |\n" for name, title in titles.items())
    return f"{text}| number | decision |\n|---|---|\n{''.join(rows)}"


def _in_table(title: str) -> str:
    return title.replace("|", "\\|")
