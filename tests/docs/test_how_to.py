"""docs/how-to: the diff of every page applies to this tree, and what the page shows then runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.forks import Forks, forking
from tests.docs.how_to import PAGES, ROOT, StaleError, apply_hunks, apply_page, copy_files, read_blocks, read_hunks

COPIED = ("graphspec", "compiler", "runtime")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return what runs programs; a warning is an error in them."""
    with forking("-W", "error") as started:
        yield started


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_of_every_page_applies(page: Path, workdir: Path) -> None:
    """Who adds an op kind changes the lines that stand around the example of one: no page is left to a sample."""
    copy_files([old for old, _, _ in read_hunks(read_blocks(page)["diff"]) if old], workdir)
    apply_page(page, workdir)


@pytest.mark.sample(2)
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.xdist_group("how-to")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_of_a_page_applies_and_its_program_runs(page: Path, workdir: Path, forks: Forks) -> None:
    blocks = read_blocks(page)
    assert blocks.keys() == {"diff", "python"}
    for name in COPIED:
        shutil.copytree(ROOT / name, name)
    copy_files([old for old, _, _ in read_hunks(blocks["diff"]) if old], workdir)
    apply_page(page, workdir)
    Path("program.py").write_text(blocks["python"], encoding="utf-8")
    code, printed = forks.run(["program.py"], workdir, workdir / "output.txt")
    assert code == 0, printed


def test_contributors_are_sent_to_every_page() -> None:
    for place in ("CONTRIBUTING.md", "docs/architecture.md"):
        text = (ROOT / place).read_text(encoding="utf-8")
        assert [page.name for page in PAGES if f"how-to/{page.name})" not in text] == []


DIFF = """diff --git a/table.py b/table.py
--- a/table.py
+++ b/table.py
@@ -2,3 +2,4 @@ TABLE = {
     "exp": 1,
     "log": 2,
+    "log1p": 3,
     "abs": 4,
"""
TABLE = ["TABLE = {", '    "exp": 1,', '    "log": 2,', '    "abs": 4,', "}"]
ADDED = '    "log1p": 3,'


def applied(lines: list[str]) -> list[str]:
    ((_, _, hunks),) = read_hunks(DIFF)
    return apply_hunks(lines, hunks)


@pytest.mark.parametrize("at", range(6))
def test_a_hunk_applies_with_a_new_line_anywhere_near_it(at: int) -> None:
    found = applied([*TABLE[:at], "    # new", *TABLE[at:]])
    assert "    # new" in found
    assert [line for line in found if line != "    # new"] == [*TABLE[:3], ADDED, *TABLE[3:]]


def test_a_hunk_that_could_go_to_two_places_does_not_apply() -> None:
    with pytest.raises(StaleError, match="hunk 1 does not apply"):
        applied([*TABLE[:3], "    # new", *TABLE[1:3], "}"])


def test_a_hunk_that_does_not_apply_is_told_with_what_is_there_and_what_to_do(workdir: Path, tmp_path: Path) -> None:
    page = tmp_path / "add-a-row.md"
    page.write_text(f"```diff\n{DIFF}```\n", encoding="utf-8")
    Path("table.py").write_text('TABLE = {\n    "exp": 1,\n    "ln": 2,\n    "magnitude": 4,\n}\n', encoding="utf-8")
    with pytest.raises(StaleError) as raised:
        apply_page(page, workdir)
    told = str(raised.value)
    assert told.startswith("docs/how-to/add-a-row.md: table.py: hunk 1 does not apply: @@ -2,3 +2,4 @@ TABLE = {\n")
    assert 'the page expects\n      |     "exp": 1,\n      |     "log": 2,\n      |     "abs": 4,\n' in told
    assert 'there now\n    1 | TABLE = {\n    2 |     "exp": 1,\n    3 |     "ln": 2,\n' in told
    assert "Change the hunk on the page" in told
