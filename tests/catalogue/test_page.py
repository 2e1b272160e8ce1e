"""docs/catalogue.md and the tests agree: no entry, spec or test is forgotten, and the specs of a row have its codes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass

import pytest

from graphspec import SpecError
from tests.catalogue.test_refused import AT_BUILD
from tests.catalogue.trial import SPECS, plan_of

TESTS = SPECS.parent
PAGE = (TESTS.parents[1] / "docs" / "catalogue.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[([^\]]+)\]\(\.\./tests/catalogue/([^)]+)\)")
CODE = re.compile(r"`([A-Z_]{5,}|[EW]-[A-Z-]+|GS\d{3})(?: (\w+))?`")

ENTRIES = {
    "discriminator first": "shown",
    "write past the counter": "shown",
    "fused write": "shown",
    "false alarm of a convolution": "shown",
    "judged again": "shown",
    "critic first": "shown",
    "fake regenerated": "shown",
    "two owners": "impossible",
    "weights clamped too early": "shown",
    "teacher in the optimizer": "impossible",
    "inner step by an optimizer": "shown",
    "temperature first": "shown",
    "state with a graph": "shown",
    "left-over gradients": "shown",
    "fake not detached": "shown",
    "gradients kept by reference": "shown",
    "never unfrozen": "shown",
    "zero for none": "shown",
    "two players accumulate": "shown",
    "moving target": "shown",
    "clipped together": "shown",
    "backward twice": "shown",
    "penalty without effect": "shown",
    "compiled second derivative": "impossible",
    "statistics updated too early": "shown",
    "teacher in train mode": "shown",
    "average of weights only": "impossible",
    "calls merged": "shown",
    "one mask for two calls": "shown",
    "center per forward": "shown",
    "average first": "shown",
    "average too early": "shown",
    "average in every step": "shown",
    "lazy term not scaled": "shown",
    "schedule in every step": "shown",
    "clip of scaled gradients": "shown",
    "scale updated twice": "shown",
    "half of the step skipped": "shown",
    "momentum of a skipped step": "shown",
    "two forwards, then two backwards": "shown",
    "gradients past the reducer": "shown",
    "no_sync too late": "shown",
    "tape used twice": "shown",
    "loss outside the tape": "impossible",
    "slots in the second trace": "shown",
    "trainable flag": "impossible",
    "frozen batch norm": "shown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the page: an entry, its kind, its specs, the codes it names, and its tests with their files."""

    name: str
    kind: str
    specs: tuple[str, ...]
    codes: tuple[tuple[str, str], ...]
    tests: tuple[tuple[str, str], ...]


def read_rows():
    """Yield the rows of all tables."""
    for line in PAGE.splitlines():
        cells = line.strip("|").split(" | ")
        if line.startswith("| **"):
            yield Row(
                name=re.match(r" \*\*(.+?)\*\*: ", cells[0])[1],
                kind=cells[2],
                specs=tuple(path.removeprefix("specs/").removesuffix(".yaml") for _, path in LINK.findall(cells[3])),
                codes=tuple(CODE.findall(cells[4])),
                tests=tuple(LINK.findall(cells[5])),
            )


ROWS = tuple(read_rows())
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_entry_has_one_row_of_its_kind():
    assert [(row.name, row.kind) for row in ROWS] == list(ENTRIES.items())


def test_the_page_counts_its_rows():
    counts = {kind: int(count) for kind, count in re.findall(r"^- \*\*(\w+)\*\* \((\d+)\)", PAGE, re.MULTILINE)}
    assert counts == Counter(row.kind for row in ROWS)
    assert f"This page lists {sum(counts.values())} of them" in PAGE


def test_every_spec_is_in_a_row():
    kept = {str(path.relative_to(SPECS).with_suffix("")) for path in SPECS.rglob("*.yaml")}
    assert {spec for row in ROWS for spec in row.specs} == kept


@pytest.mark.parametrize("path", sorted(SPECS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_spec_says_in_its_first_line_what_it_is_and_is_named_like_its_file(path):
    text = path.read_text(encoding="utf-8")
    assert re.match(r"# \S.*\.\ngraphspec: 1\n", text)
    assert f"\nname: {path.stem}\n" in text


def test_every_test_is_in_a_row_and_every_test_of_a_row_exists():
    files = [path for path in TESTS.glob("test_*.py") if path.name != "test_page.py"]
    found = {(name, path.name) for path in files for name in find_tests(path) if not name.startswith("test_every_spec")}
    assert {test for row in ROWS for test in row.tests} == found


def find_tests(path):
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@each_row
def test_a_row_is_of_the_kind_of_its_specs(row):
    folders = {spec.split("/")[0] if "/" in spec else "" for spec in row.specs}
    assert {"shown": "", "impossible": "refused"}[row.kind] in folders


@each_row
def test_the_codes_of_a_row_are_what_is_told(row):
    told = {found for spec in row.specs for found in find_told(spec)}
    assert set(row.codes) <= told | {(code, "") for code, _ in told}


def find_told(spec):
    """Yield code and op of every decision and warning of a spec, in both orders, or the codes of its problems."""
    try:
        plans = [plan_of(spec, order=order).to_json() for order in ("fewest", "listed")]
    except SpecError as error:
        yield from ((each.code, "") for each in error.diagnostics)
        return
    for found in plans:
        yield from ((each["code"], each["subject"]) for each in found["decisions"])
        yield from ((each["code"], each["op"]) for each in found["warnings"])
    yield from (("GS212", "") for name in AT_BUILD if spec == f"refused/{name}")
