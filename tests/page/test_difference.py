"""Two plans side by side: what both have stands in one row, the rest is marked and has the reasons of the text."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from compiler import compile_step
from compiler.plan.diff import compare_plans, format_difference
from compiler.plan.page.difference import align, find_function, write_difference
from compiler.plan.page.picture_layout import GAP, list_rows
from graphspec import load
from runtime.cli import execute

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PAIRS = [("cyclegan/cyclegan", "cyclegan-separate/cyclegan-separate"), ("td3/td3", "sac/sac"), ("sac/sac", "sac/sac")]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_rows_of_both_plans_stand_side_by_side_or_have_moved(one: str, other: str) -> None:
    old, new = (compile_step(load(EXAMPLES / f"{name}.yaml")) for name in (one, other))
    for change in compare_plans(old, new).functions:
        was, now = find_function(old, change.mode, change.was), find_function(new, change.mode, change.name)
        rows = list_rows(old, was), list_rows(new, now)
        before, after = align(*rows)
        assert len(before) == len(after)
        assert [row for row in before if row is not GAP] == rows[0]
        assert [row for row in after if row is not GAP] == rows[1]
        apart = {row.node for row, beside in zip(after, before, strict=True) if row.node != beside.node}
        shared = apart & {row.node for row in rows[0]} & {*new.graphs[now.name].nodes}
        labels = {new.graphs[now.name].nodes[node].label for node in shared}
        assert labels <= {move.label for move in change.moved}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_page_has_the_text_and_marks_what_it_names(one: str, other: str) -> None:
    old, new = (compile_step(load(EXAMPLES / f"{name}.yaml")) for name in (one, other))
    page = write_difference(old, new, "a < b", "declared")
    assert "<title>a &lt; b</title>" in page
    difference = compare_plans(old, new)
    assert format_difference(difference).strip() in unescape(page)
    marked = {word: len(re.findall(rf'<li class="{word}">', page)) for word in ("added", "removed")}
    assert marked["added"] == sum(len(change.rows.appeared) for change in difference.functions)
    assert marked["removed"] == sum(len(change.rows.vanished) for change in difference.functions)
    assert page.count('<details open="">') == sum(map(bool, difference.functions)) + len(
        difference.whole.appeared + difference.whole.vanished
    )
    assert "<script" not in page


def test_the_command_writes_it(workdir: Path) -> None:
    spec = str(EXAMPLES / "gan-digits/gan-digits.yaml")
    assert execute(["diff", spec, spec, "-s", "ops.judged.after=[]", "--format", "html", "-o", "difference.html"]) == 0
    page = unescape((workdir / "difference.html").read_text(encoding="utf-8"))
    assert "ops.judged.after: step_d -> []" in page
    assert "forward judged reads discriminator.params@0 instead of discriminator.params@1" in page
    assert re.search(
        r'<li class="changed"><div><b class="number" title="changed">~</b><code title="[^"]*">judged = ', page
    )
