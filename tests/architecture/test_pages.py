"""docs/architecture.md names every package, and every pass in the order in which they run; paths on it exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from compiler.passes.pipeline import ANALYSES, CHECKS, DOCUMENT, SCHEDULING

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOLDERS = ("graphspec", "compiler", "runtime")
DATA = {"runtime/datasets", "runtime/templates"}
"""Folders without code of their own."""


def test_every_package_is_in_the_table_and_every_row_is_a_package() -> None:
    named = set(re.findall(r"^\| `(\w+/\w+)` \|", PAGE, re.MULTILINE))
    there = {f"{holder}/{path.name}" for holder in HOLDERS for path in (ROOT / holder).iterdir() if path.is_dir()}
    assert named == {name for name in there if not name.endswith("__pycache__")} - DATA


def test_the_passes_are_listed_in_the_order_in_which_they_run() -> None:
    named = re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)
    assert named == [each.name for each in (*DOCUMENT, *ANALYSES, *CHECKS, *SCHEDULING)]


def test_files_that_contributors_are_sent_to_exist() -> None:
    for page in ("CONTRIBUTING.md", "docs/architecture.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:graphspec|compiler|runtime|tests|docs)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_what_make_runs_exists() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    generators = re.findall(r"^GENERATORS := (.*)$", text, re.MULTILINE)[0].split()
    named = [f"tests.{each}" for each in generators]
    named += re.findall(r"python -m ((?:tests|graphspec|compiler)\.[\w.]+)", text)
    assert len(named) > 10
    assert [each for each in named if find_spec(each) is None] == []
