"""Two plans next to each other as a page: what they share stands side by side, what differs is marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.program import Function
from compiler.plan.diff import compare_plans, find_longest, format_difference
from compiler.plan.page.html import write_style
from compiler.plan.page.picture_layout import GAP, Row, list_rows, place_rows
from compiler.plan.page.svg import HEAD, Rails, list_flags, phrase_of
from compiler.plan.page.tags import escape_text, read_asset, tag
from compiler.plan.plan import Plan

SIGNS = {"removed": "-", "added": "+", "changed": "~", "moved": ">"}
"""What is printed before a line in the text of a difference."""


def write_difference(old: Plan, new: Plan, title: str, declared: str) -> str:
    """Return the difference of two plans as a page, below what their specs declare differently."""
    difference = compare_plans(old, new)
    parts = [tag("pre", escape_text(f"{declared}\n\n{format_difference(difference)}".strip()), tabindex=0)]
    for change in difference.functions:  # the rows of both side by side; closed where nothing is different
        was, now = find_function(old, change.mode, change.was), find_function(new, change.mode, change.name)
        before, after = align(list_rows(old, was), list_rows(new, now))
        both = {each.label: "moved" for each in change.moved} | {each.label: "changed" for each in change.altered}
        removed = {each.label: "removed" for each in change.rows.vanished}
        added = {each.label: "added" for each in change.rows.appeared}
        sides = (_write_side(old, was, before, both | removed), _write_side(new, now, after, both | added))
        name = change.name if change.name == change.was else f"{change.name} (was {change.was})"
        parts.append(_write_sides(name if change else f"{name}: the same", sides, is_open=bool(change)))
    for plan, only, functions in (
        (new, "is new", difference.whole.appeared),
        (old, "is gone", difference.whole.vanished),
    ):
        for each in functions:
            function = find_function(plan, each.mode, each.name)
            side = _write_side(plan, function, list_rows(plan, function), {})
            parts.append(_write_sides(f"{each.name} {only}", (side,), is_open=True))
    return read_asset(
        "difference.html",
        title=escape_text(title),
        style=write_style(),
        parts="\n".join(parts),
    )


def find_function(plan: Plan, mode: str, name: str) -> Function:
    """Return a function of a plan."""
    return next(each for each in plan.program.mode(mode).functions if each.name == name)


def align(old: Sequence[Row], new: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return two lists of rows with gaps, so that what is in both stands side by side unless it has moved."""
    places = {row.node: place for place, row in enumerate(old)}
    common = [row.node for row in new if row.node in places]
    kept = find_longest([places[node] for node in common])
    before, after, begin, start = list[Row](), list[Row](), 0, 0
    for end, row in enumerate(new):
        if places.get(row.node) in kept:
            place = places[row.node]
            before += [*old[begin:place], *[GAP] * (end - start), old[place]]
            after += [*[GAP] * (place - begin), *new[start:end], row]
            begin, start = place + 1, end + 1
    before += [*old[begin:], *[GAP] * (len(new) - start)]
    after += [*[GAP] * (len(old) - begin), *new[start:]]
    return before, after


def _write_sides(title: str, sides: Sequence[str], *, is_open: bool) -> str:
    body = tag("div", *sides, class_="sides")
    return tag("details", tag("summary", escape_text(title)), body, open="" if is_open else None)


def _write_side(plan: Plan, function: Function, rows: Sequence[Row], status: Mapping[str, str]) -> str:
    """Return a function of one of the plans: lanes and lines, with what is different about each by its label."""
    rails = Rails(place_rows(plan, function, rows))
    sizes = {"class_": "plan", "aria_hidden": "true", "width": rails.width}
    head = tag("div", tag("svg", rails.draw_head(), **sizes, height=HEAD), class_="head")
    nodes = plan.graphs[function.name].nodes
    labels = {row.node: nodes[row.node].label for row in rows if row.node in nodes}
    lines: list[str] = []
    for row in rows:
        changed = status.get(labels.get(row.node, ""), "")
        flags = (tag("span", escape_text(flag), class_=style) for flag, style in list_flags(row))
        sign = tag("b", SIGNS.get(changed, ""), class_="number", title=changed or None)
        line = tag("div", sign, tag("code", escape_text(phrase_of(row)), title=phrase_of(row) or None), *flags)
        lines.append(tag("li", line, class_=changed or None))
    drawn = tag("svg", rails.draw(), **sizes, height=rails.height)
    body = tag("div", drawn, tag("ol", *lines, class_="rows"), class_="body", style=f"height:{rails.height}px")
    name = f"{function.name} of {plan.program.name}"
    return tag("div", head, body, role="region", aria_label=name, tabindex=0, style=f"--left:{rails.width}px")
