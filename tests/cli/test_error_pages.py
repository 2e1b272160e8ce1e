"""Every code that the command line and the data sources give has a page, and no page is for nothing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "errors"
OURS = re.compile(r"GS20[1-5]|GS2[2-5]\d")


def raised() -> set[str]:
    sources = [path for path in (ROOT / "runtime").rglob("*.py") if "backends" not in path.parts]
    sources.append(ROOT / "graphspec" / "check" / "data.py")
    return {code for path in sources for code in re.findall(r'"(GS\d{3})"', path.read_text()) if OURS.fullmatch(code)}


def test_every_code_has_a_page_and_every_page_a_code():
    pages = {path.stem for path in PAGES.glob("GS2*.md") if OURS.fullmatch(path.stem)}
    assert pages == raised()


def test_every_page_says_what_to_do():
    for code in raised():
        text = (PAGES / f"{code}.md").read_text()
        assert text.startswith(f"# {code}: "), code
        assert "**Remedy.**" in text, code
        assert "```" in text, code
