"""The pages of the compiler's codes: every code has one, and its example gives exactly that code and message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.loading import load

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "errors").glob("*.md")) if path.stem[:2] in ("E-", "W-")}
CODE = re.compile(r"\"([EW]-[A-Z]+(?:-[A-Z]+)*)\"")


def block(code: str, language: str) -> str:
    """Return the first block in a language on the page of a code."""
    text = PAGES[code].read_text(encoding="utf-8")
    return text.split(f"```{language}\n")[1].split("```")[0]


def diagnose(code: str) -> list[Diagnostic]:
    """Return what the compiler says of the example on the page of a code."""
    try:
        return list(compile_step(load(block(code, "yaml"))).warnings)
    except SpecError as error:
        return list(error.diagnostics)


def test_every_code_has_a_page_and_every_page_a_code():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "compiler").rglob("*.py")]
    assert {code for source in sources for code in CODE.findall(source)} == set(PAGES)


@pytest.mark.parametrize("code", PAGES)
def test_the_example_of_a_page_gives_exactly_its_code(code):
    found = diagnose(code)
    assert {one.code for one in found} == {code}
    assert {one.severity for one in found} == {"error" if code.startswith("E") else "warning"}


@pytest.mark.parametrize("code", PAGES)
def test_a_page_shows_the_message_of_its_example(code):
    first = diagnose(code)[0]
    assert block(code, "text").split() == f"{first.severity}[{code}]: {first.message}".split()


@pytest.mark.parametrize("code", PAGES)
def test_a_page_has_a_title_a_meaning_and_a_remedy(code):
    lines = PAGES[code].read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {code}: [a-z].*[^.]", lines[0])
    assert any(line.startswith("**Remedy.** ") for line in lines)
    assert 10 <= len(lines) <= 30
    assert max(map(len, lines)) <= 120
