"""Where things stand in the picture, against the printed plan, the program and the graph of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx
import pytest

from benchmarks.compile_time import make_wide
from compiler import Plan, compile_step
from compiler.ir.cell import find_tied
from compiler.plan.page.picture_layout import MOST_TRACKS, Picture, Storage, lay_out
from graphspec import load
from tests.compiler.printed import read_functions

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "tests/golden/valid", "tests/conformance/specs")
SPECS = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.yaml"))]
MOST = 2
"""So many functions of a mode are looked at, the longest: they differ little."""


Drawn: TypeAlias = "tuple[Plan, str, Picture]"


@cache
def draw(path: Path) -> tuple[Drawn, ...]:
    """Return the longest functions of a spec, on both backends unless it is one of many."""
    found: list[Drawn] = []
    for backend in ("torch",) if "conformance" in path.parts else ("torch", "tensorflow"):
        order = "latest" if "separate" in path.stem else "fewest"
        plan = compile_step(load(path), backend, order=order, pending=True)
        for mode in plan.program.modes:
            longest = sorted(mode.functions, key=lambda each: -len(each.instructions))[:MOST]
            found += [(plan, mode.mode, lay_out(plan, function)) for function in longest]
    return tuple(found)


def every_picture(check: Callable[[Plan, str, Picture], None]) -> Callable[[Path], None]:
    """Return the test that checks the pictures of a spec."""

    def test(path: Path) -> None:
        for plan, mode, picture in draw(path):
            check(plan, mode, picture)

    names = [f"{path.parent.name}-{path.stem}" for path in SPECS]  # what one process has drawn others need not draw
    drawn = [
        pytest.param(path, marks=pytest.mark.xdist_group(f"drawn {name}"))
        for path, name in zip(SPECS, names, strict=True)
    ]
    return pytest.mark.parametrize("path", drawn, ids=names)(test)


def export(plan: Plan, mode: str, picture: Picture) -> list[Any]:
    """Return the instructions of a function as they are published."""
    functions: Any = plan.to_json(mode)["functions"]
    return next(each["instructions"] for each in functions if each["name"] == picture.name)


def find_rows(instructions: list[Any], picture: Picture) -> dict[int, int]:
    """Return the row of every instruction with a line; the row of a fold has all lines of its iterations."""
    lines = [at for at, each in enumerate(instructions) if each["kind"] != "release" and not each.get("into")]
    rows = [(number, row) for number, row in enumerate(picture.rows) if row.place >= 0]
    numbers = [number for number, row in rows for _ in range(row.lines)]
    found = dict(zip(lines, numbers, strict=True))
    assert [row.place for _, row in rows] == [min(at for at in found if found[at] == number) for number, _ in rows]
    assert all(row.lines == 1 or row.kind == "repeat" for _, row in rows)
    return found


@pytest.mark.sample(5)
@every_picture
def test_rows_are_the_lines_of_the_printed_plan(plan: Plan, mode: str, picture: Picture) -> None:
    printed = read_functions(plan.text(mode))[picture.name]
    rows = [row for row in picture.rows if row.place >= 0]
    for row, (kind, text) in zip(rows, printed, strict=True):
        assert kind == row.kind
        assert text.startswith(row.text)


@pytest.mark.sample(5)
@every_picture
def test_every_instruction_with_a_line_has_one_row(plan: Plan, mode: str, picture: Picture) -> None:
    found = find_rows(export(plan, mode, picture), picture)
    assert {*found.values()} == {number for number, row in enumerate(picture.rows) if row.place >= 0}
    assert len({row.node for row in picture.rows}) == len(picture.rows)


def find_read(each: Any) -> set[str]:
    """Return what an instruction reads by name, as it is published; numbers and models are not made by anything."""
    listed = [*each.get("inputs", ()), *each.get("targets", ()), each.get("loss", "")]
    listed += [each.get(field) for field in ("weights", "base", "gradients", "rate")]  # of models that are derived
    listed += each["values"] if each["kind"] == "emit" else []
    listed += [name for way in (*each.get("commits", ()), *each.get("unless", ())) for name in way]
    return {name for name in listed if isinstance(name, str)}


@pytest.mark.sample(5)
@every_picture
def test_edges_of_values_join_what_makes_and_what_reads_them(plan: Plan, mode: str, picture: Picture) -> None:
    instructions = export(plan, mode, picture)
    # The parts of an expression are in the row of what they are written into.
    into = {each["outputs"][0]: each["into"] for each in instructions if each.get("into")}
    rows = find_rows(instructions, picture)
    makers = {
        value: rows[at] for at, each in enumerate(instructions) if at in rows for value in each.get("outputs", ())
    }
    makers |= {each.name: 0 for each in plan.program.inputs if picture.rows[0].place < 0}
    found = set()
    for at, each in enumerate(instructions):
        reader = rows.get(at)
        if each["kind"] != "release" and reader is None:
            value = each["outputs"][0]
            while value in into:
                value = into[value]
            reader = makers[value]
        found |= {(name, makers[name], reader) for name in find_read(each) if name in makers and reader is not None}
    # What the iterations of a fold make for one another stays in its row.
    found = {each for each in found if each[1] != each[2] or picture.rows[each[1]].kind != "repeat"}
    told = {(edge.value, edge.before, edge.after) for edge in picture.values}
    # The published plan leaves out what a draw is like, what a gradient begins with, and what windows hold and count.
    told_less = ("random", "gradient", "check_finite", "accumulate", "repeat")  # a fold has such lines too
    assert found <= told
    assert {picture.rows[after].kind for _, _, after in told - found} <= {*told_less}
    graph = plan.graph(mode, picture.name)
    nodes = [row.node for row in picture.rows]
    pairs = {(nodes[before], nodes[after]) for _, before, after in told}
    assert {pair for pair in pairs if pair[0] in graph and pair[1] in graph} - {
        *nx.transitive_closure(graph).edges()
    } == set()


@pytest.mark.sample(5)
@every_picture
def test_lanes_have_the_versions_of_the_program(plan: Plan, mode: str, picture: Picture) -> None:
    made: dict[Storage, set[int]] = defaultdict(set)
    instructions = export(plan, mode, picture)
    rows = find_rows(instructions, picture)
    folded = {at: number for at, number in rows.items() if picture.rows[number].kind == "repeat"}
    last = {(folded[at], text.split("@")[0]): text for at in folded for text in instructions[at].get("writes", ())}
    for at, each in enumerate(instructions):
        for text in each.get("writes", ()):
            if at in folded and last[folded[at], text.split("@")[0]] != text:
                continue  # a fold shows the last version alone
            cell, version = text.split("@")
            if cell.endswith((".params", ".state", ".window")):
                owner, kind = cell.rsplit(".", 1)
                made[Storage("model" if kind == "params" else kind, owner)].add(int(version))
            elif cell.startswith("tied("):
                for owner in cell[5:-1].split(", "):
                    made[Storage("model", owner)].add(int(version))
    assert {*made} <= {*picture.lanes}
    for storage, lane in picture.lanes.items():
        assert {*lane.versions} == {0, *made[storage]}
        assert [*lane.versions] == sorted(lane.versions)
        assert [*lane.versions.values()] == sorted(lane.versions.values())


@pytest.mark.sample(5)
@every_picture
def test_a_forward_is_in_the_lane_of_its_model_at_the_version_that_it_reads(
    plan: Plan, mode: str, picture: Picture
) -> None:
    instructions = export(plan, mode, picture)
    for row in picture.rows:
        each = instructions[row.place] if row.place >= 0 and row.kind != "repeat" else {}
        if each.get("kind") == "forward" and not find_tied(plan.spec, each["model"]):
            assert row.home == Storage("model", each["model"])
            versions = [int(at.split("@")[1]) for at in each.get("reads", ()) if at.split("@")[0].endswith(".params")]
            assert row.marks[0].version == (versions or [0])[0]
        if each.get("kind") == "gradient" and row.home is not None:
            assert row.home.name == each["targets"][0]


@pytest.mark.sample(3)
@every_picture
def test_nothing_overlaps(plan: Plan, mode: str, picture: Picture) -> None:
    spans: dict[str, tuple[int, int, int]] = {}
    for value, before, after, track in picture.values:
        assert before < after
        spans[value] = (track, before, max(after, spans.get(value, (0, 0, 0))[2]))
    for one, other in combinations(spans.values(), 2):
        overlap = one[1] < other[2] and other[1] < one[2]
        assert not overlap or one[0] != other[0] or one[0] == MOST_TRACKS - 1


@pytest.mark.sample(5)
@every_picture
def test_what_a_write_waits_for_holds_it(plan: Plan, mode: str, picture: Picture) -> None:
    held = {why for order in picture.orders if order.track is not None for _, why in order.reasons}
    waits = [wait["text"] for each in export(plan, mode, picture) for wait in each.get("waits", ())]
    assert {*waits} <= held
    assert bool(waits) == bool(held)
    for decision in plan.graphs[picture.name].decisions:
        if decision.code == "DEFER":
            assert next(row.deferred for row in picture.rows if row.node == decision.node) == decision.text
    assert all(order.before < order.after for order in picture.orders)


def test_an_update_of_a_simultaneous_gan_is_held_by_the_gradient_that_runs_through_the_discriminator() -> None:
    plan = compile_step(load(ROOT / "examples/simultaneous-gan/simultaneous-gan.yaml"), order="listed")
    picture = lay_out(plan, plan.program.mode("train").functions[0])
    (order,) = (each for each in picture.orders if each.track is not None)
    assert [picture.rows[at].node for at in (order.after, order.before)] == ["step_d", "step_g.gradient"]
    gradient = picture.rows[order.before]
    assert [(mark.storage.name, mark.does) for mark in gradient.marks] == [
        ("generator", "differentiates"),
        ("discriminator", "back"),
    ]


def test_many_lanes_share_columns_without_overlap() -> None:
    plan = compile_step(load(make_wide(30).replace(", every: 2", "")))
    picture = lay_out(plan, plan.program.mode("train").functions[0])
    assert len(picture.lanes) == 90
    assert {lane.column for lane in picture.lanes.values()} == {0, 1, 2}
    for one, other in combinations(picture.lanes.values(), 2):
        assert one.column != other.column or one.last < other.first or other.last < one.first
