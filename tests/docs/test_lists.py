"""Lists on the pages name what the code has, no more and no less."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from compiler import compile_step
from compiler.ir.instructions import KINDS as INSTRUCTIONS
from compiler.ir.instructions import RestoreAccumulator, Transform
from compiler.ir.step_graph import Hazard
from compiler.plan.legend import MARKS, MEANINGS
from compiler.plan.schema import EDGES
from compiler.plan.text import flags_of
from graphspec import load
from graphspec.declare.graph import EXPANDED
from graphspec.declare.ops import KINDS

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"`([\w-]+)`")


def read(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def between(text: str, first: str, last: str) -> str:
    """Return what stands between two phrases of a page, which are both there."""
    _, _, rest = text.partition(first)
    found, end, _ = rest.partition(last)
    assert rest, first
    assert end, last
    return found


def first_column(table: str) -> list[str]:
    return re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)


def test_the_language_names_every_kind_of_op():
    text = between(read("language.md"), "The kind of an op is its one kind key: ", ". (`loss`")
    assert sorted(WORD.findall(text)) == sorted((*KINDS, *EXPANDED))


def test_the_semantics_explains_every_hazard():
    table = between(read("semantics.md"), "**Hazards** delay a write.", "```console")
    assert sorted(first_column(table)) == sorted(each.value for each in Hazard)


def test_the_plan_format_lists_every_kind_of_instruction():
    table = between(read("plan.md"), "| kind | adds | meaning |", "## Decisions")
    assert sorted(first_column(table)) == sorted(kind.kind() for kind in INSTRUCTIONS)
    fields = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    for kind in INSTRUCTIONS:
        adds = {*kind.FIELDS} | ({"unless"} if kind in (Transform, RestoreAccumulator) else set())
        assert adds == {*WORD.findall(fields[kind.kind()])}, kind


def test_the_plan_format_lists_every_edge_of_a_reason():
    text = between(read("plan.md"), "\nThe edges are ", "## Versions")
    assert set(EDGES) <= set(WORD.findall(text))


def test_words_of_plans_are_explained():
    assert {*EDGES, "waw"} - {"data", "graph", "defer", "order"} <= {*MEANINGS}
    table = between(read("plan.md"), "## Decisions", "\nThe edges are ")
    for code, meaning in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE):
        assert MEANINGS[code] == meaning


def test_every_mark_of_a_line_has_a_word_that_is_explained():
    table = between(read("plan.md"), "## As text", "## As a picture")
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == MARKS
    assert MARKS.keys().isdisjoint(MEANINGS)
    seen = set[str]()
    specs = [load(path) for path in (*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("tests/conformance/specs/*.yaml"))]
    specs.append(load(ROOT / "examples/cyclegan/cyclegan.yaml", ["parallel={kind: replicated}"]))
    for spec in specs:
        plan = compile_step(spec, pending=True)
        seen |= {
            flag
            for mode in plan.program.modes
            for each in mode.functions
            for one in each.instructions
            for flag in flags_of(one)
        }
    words = {flag: MARKS.keys() & set(re.findall(r"\w+", flag)) for flag in seen}
    assert [flag for flag, known in words.items() if not known] == []
    assert set().union(*words.values()) >= {*MARKS} - {
        "waits",
        "unless",
    }  # a plan adds the one; no spec here has the other


def test_the_plan_format_lists_every_decision():
    found = set[str]()
    for path in (ROOT / "compiler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Decision":
                found |= {word.value.value for word in node.keywords if word.arg == "code"}
    table = between(read("plan.md"), "## Decisions", "\nThe edges are ")
    assert set(first_column(table)) == found


def test_every_word_of_the_glossary_is_used_in_the_code():
    used = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "compiler").rglob("*.py"))
    for word in re.findall(r"^\| `(\w+)` \|", read("glossary.md"), re.MULTILINE):
        assert re.search(rf"\b{word}\b", used), word
