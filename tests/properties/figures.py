"""Figures of the soak as a table of the documentation, between two marks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.properties.results import Results

BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"


def write_figures(results: Results, page: Path) -> None:
    """Renew the table on a page; nothing where the page has no place for it."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        beside = page.with_name(f".{page.name}.{os.getpid()}")
        beside.write_text(f"{before}{BEGIN}\n{make_figures(results)}\n{END}{after}", encoding="utf-8")
        beside.replace(page)


def make_figures(results: Results) -> str:
    """Return the table in Markdown."""
    return "\n".join(["", "| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in _rows(results)), ""])


def _rows(results: Results) -> Iterator[tuple[str, str]]:
    yield "random specs", f"{results.count():,}"
    yield "seeds", ", ".join(f"{first} to {last}" for first, last in results.seeds)
    yield "agreed with the oracle under all three policies", f"{results.specs['agreed']:,}"
    yield "numbers differed", f"{results.specs['mismatch']:,}"
    yield "run-time errors", f"{results.specs['error']:,}"
    yield "rejected with a code that these specs must not have", f"{results.specs['refused']:,}"
    for code, count in sorted(results.rejected.items()):
        yield f"rejected: `{code}`", f"{count:,}"
    for reason, count in sorted(results.degenerate.items()):
        yield f"not judged: {reason}", f"{count:,}"
    yield "programs executed", f"{results.programs['executed']:,}"
    yield "plans whose program was one of these already", f"{results.programs['same']:,}"
    yield "with", "; ".join(results.versions)
