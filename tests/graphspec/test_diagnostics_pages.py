"""The pages of errors: there is one for every code of the text layer, and its example gives the error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphspec
from graphspec.diagnostics import SpecError
from graphspec.loading import check_document
from graphspec.read.interpolation import interpolate
from graphspec.read.overrides import override
from graphspec.read.source import read_document

MODULES = Path(graphspec.__file__).parent.rglob("*.py")
PAGES = {
    path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parents[2].glob("docs/errors/GS0[0-4]*.md")
}
EXAMPLE = re.compile(r"^```(yaml|json)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ASSIGNMENT = re.compile(r"^\$ stepgraph .* -s (\S+)$", re.MULTILINE)
WITHOUT_EXAMPLE = {"GS002", "GS012", "GS013", "GS016", "GS017", "GS018"}


def check(text, suffix, assignments):
    """Return the codes that a text and its overrides give."""
    try:
        document = interpolate(override(read_document(text, name=f"page.{suffix}"), assignments))
    except SpecError as error:
        return {item.code for item in error.diagnostics}
    return {item.code for item in check_document(document)[1]}


def test_every_code_has_a_page_and_every_page_a_code():
    source = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert set(re.findall(r'"(GS0[0-4]\d)"', source)) == set(PAGES)


@pytest.mark.parametrize("code", sorted(PAGES))
def test_a_page_says_what_the_error_is_and_how_to_fix_it(code):
    assert PAGES[code].startswith(f"# {code}: ")
    assert "\n**Remedy.** " in PAGES[code]


@pytest.mark.parametrize("code", sorted(set(PAGES) - WITHOUT_EXAMPLE))
def test_the_first_example_of_a_page_gives_the_error(code):
    suffix, text = EXAMPLE.search(PAGES[code]).groups()
    assert code in check(text, suffix, ASSIGNMENT.findall(PAGES[code]))
