"""Every code has a page; its first example gives just that code, and its second loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphspec import load

ROOT = Path(__file__).parents[2]
LATER = ("GS133", "GS134", "GS135")
"""Codes of the compiler and of builds among the numbers of the rules."""
PAGES = sorted(
    path
    for path in (ROOT / "docs" / "errors").glob("GS*.md")
    if re.fullmatch(r"GS(05|1[0-9])[0-9]", path.stem) and path.stem not in LATER
)
SOURCES = sorted((ROOT / "graphspec").rglob("*.py"))


def _examples(path):
    return re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_first_example_gives_the_code_and_the_second_is_corrected(path, find):
    wrong, corrected = _examples(path)
    assert find(wrong).codes == (path.stem,)
    assert load(corrected).ops


def test_every_code_of_the_rules_has_a_page_and_every_page_a_rule():
    used = {code for path in SOURCES for code in re.findall(r"GS(?:05|1[0-9])[0-9]", path.read_text(encoding="utf-8"))}
    assert used == {path.stem for path in PAGES}
