"""Codes of diagnostics: their prefix gives the severity, their number the range of the layer that finds the problem.

The ranges are those of docs/how-to/add-a-diagnostic.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("codes")  # one worker looks for them once

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-a-diagnostic.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| GS(\d{3})-GS(\d{3}) \| ((?:`[\w/]+`(?:, )?)+) \|", re.MULTILINE)
CODE = re.compile(r"GS(\d{3})|[EW]-[A-Z]+(?:-[A-Z]+)*")
ELSEWHERE = {
    "GS061": "compiler",  # what a field of a declaration leads to
    "GS101": "graphspec",  # names, also while they are declared in Python
    "GS115": ("graphspec", "runtime"),  # a build knows the parts of a class that `tap` names
    "GS120": "compiler",  # `start` and `until`, once durations are counted
    "GS133": "compiler",
    "GS134": "runtime",
    "GS135": "runtime",
    "GS223": "graphspec",  # what the bundled data gives is known before it is read
    "GS227": "graphspec",
    "GS228": "graphspec",
    "GS229": "graphspec",
    "GS230": ("graphspec", "compiler"),  # a name, and a shape, of a value that the run shows
    "GS275": "graphspec",  # arguments of the Python functions of every layer
}
"""Codes that another layer gives than the range says, or gives too."""
UNDECIDED = {"E-BUFFERS"}
"""Errors that are warnings until the build has looked at a class."""


def find_nodes(pattern: re.Pattern[str]) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the syntax nodes of every module of the project whose text has the pattern, with its path."""
    for layer in ("graphspec", "compiler", "runtime"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if pattern.search(text):
                yield from ((path.relative_to(ROOT), node) for node in ast.walk(ast.parse(text)))


@cache
def find_codes() -> frozenset[tuple[str, str]]:
    """Return every code of the project with the path of a module that has it as a string."""
    return frozenset(
        (node.value, path.as_posix())
        for path, node in find_nodes(CODE)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    )


def read_ranges() -> list[tuple[int, int, list[str]]]:
    return [(int(first), int(last), re.findall(r"`(.+?)`", where)) for first, last, where in ROW.findall(PAGE)]


def test_ranges_do_not_overlap():
    ranges = read_ranges()
    assert len(ranges) == 4
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


def test_every_number_is_in_the_range_of_its_folder():
    wrong = []
    for code, path in find_codes():
        if code.startswith("GS") and not path.startswith(ELSEWHERE.get(code, "nowhere")):
            homes = [where for first, last, where in read_ranges() if first <= int(code[2:]) <= last]
            if not any(path.startswith(f"{home}/") for where in homes for home in where):
                wrong.append(f"{path}: {code}")
    assert wrong == []
    assert ELSEWHERE.keys() <= {code for code, _ in find_codes()}


def test_codes_of_words_are_the_compilers():
    words = {(code, path.partition("/")[0]) for code, path in find_codes() if not code.startswith("GS")}
    ours = {code for code, layer in words if layer == "compiler"}
    assert {code for code, _ in words} == ours  # a build may give one of them too
    assert [code for code, layer in words if layer == "graphspec"] == []


def test_the_severity_of_a_diagnostic_is_that_of_its_code():
    wrong = []
    for path, node in find_nodes(re.compile(r"\bDiagnostic\(")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Diagnostic":
            given = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
            code, severity = str(given.get("code", "")), given.get("severity", "error")
            if code not in UNDECIDED and severity != ("warning" if code.startswith("W-") else "error"):
                wrong.append(f"{path}:{node.lineno}: {code} is given as a {severity}")
    assert wrong == []
