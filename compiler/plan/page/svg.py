"""The picture of a step as SVG: the rails that the page shows too, and whole files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.plan.compiled_step import CompiledStep
from compiler.plan.page.layout import VALUES, Mark, Order, Picture, Row, ValueEdge, lay_out
from compiler.plan.page.tags import escape_text, read_asset, tag, write_palette
from compiler.plan.summary import find_summarized
from compiler.plan.text import describe_function
from compiler.plan.turns import describe_turns

ROW = 26
TRACK = 7
LANE = 46
MARGIN = 12
BEND = 5
BELOW = 4
"""How far below the middle of a row its orders begin and end, so that they are not on the lines that join its marks."""
HEAD = 92
"""The height of the names above the lanes."""
LETTER = 7.25
"""The width of a letter of the lines; they are in a fixed pitch, whatever font there is."""
WIDEST = 84
LONGEST_NAME = 18
COLORS = 4
"""Versions take turns with so many colours; that of version 0 is used once."""


def x_of(picture: Picture, lane: int) -> int:
    """Return the place of a lane."""
    values = MARGIN + picture.tracks * TRACK + 8
    return values if lane == VALUES else values + 44 + picture.lanes[lane].column * LANE


def y_of(row: int) -> int:
    """Return the middle of a row."""
    return row * ROW + ROW // 2


def width_of(picture: Picture) -> int:
    """Return the width of tracks and lanes, after which the lines begin."""
    last = MARGIN + picture.tracks * TRACK + 8 + (44 + (picture.columns - 1) * LANE if picture.lanes else 0)
    return last + 30 + (picture.order_tracks + any(not each.holds for each in picture.orders)) * 8 + 6


def height_of(picture: Picture) -> int:
    """Return the height of the rows."""
    return len(picture.rows) * ROW


def color_of(version: int) -> str:
    """Return the class of the colour of a version."""
    return f"v{version if version == 0 else (version - 1) % (COLORS - 1) + 1}"


def draw_head(picture: Picture) -> str:
    """Return the names of the lanes, at a slant above them."""
    shared = picture.columns < len(picture.lanes)
    names = {VALUES: "values"} | ({} if shared else {at: each.storage.name for at, each in enumerate(picture.lanes)})
    return "".join(
        tag(
            "text",
            escape_text(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"),
            class_="name soft" if lane == VALUES else "name",
            transform=f"translate({x_of(picture, lane) + 3} {HEAD - 8}) rotate(-38)",
        )
        for lane, name in names.items()
    )


def draw_rails(picture: Picture) -> str:
    """Return tracks, lanes and what every row does to them, without any line of text."""
    tracks = tag("g", *_draw_tracks(picture))
    return tracks + "".join((*_draw_lanes(picture), *_draw_rows(picture), *_draw_orders(picture)))


def _draw_tracks(picture: Picture) -> Iterator[str]:
    """Yield the edges of values."""
    for edge in picture.values:
        yield tag("path", d=_bend_left(picture, edge), class_="track", data_a=edge.before, data_b=edge.after)


def _bend_left(picture: Picture, edge: ValueEdge) -> str:
    """Return the way of a value: from its row to its track, down, and to the row that reads it."""
    x = x_of(picture, VALUES) - 8 - (edge.track + 1) * TRACK
    begin, end = (x_of(picture, picture.rows[number].home) for number in (edge.before, edge.after))
    down = y_of(edge.after) - 4 - BEND
    return f"M{begin} {y_of(edge.before) + 4}H{x + BEND}q-{BEND} 0 -{BEND} {BEND}V{down}q0 {BEND} {BEND} {BEND}H{end}"


def _draw_lanes(picture: Picture) -> Iterator[str]:
    """Yield the lines of the lanes, in the colours of their versions."""
    last = len(picture.rows) - 1
    x = x_of(picture, VALUES)
    yield tag("path", d=f"M{x} 0V{height_of(picture)}", class_="rule")
    for each in picture.segments:
        top = 0 if each.first == 0 else y_of(each.first)
        bottom = height_of(picture) if each.last == last else y_of(each.last)
        way = f"M{x_of(picture, each.lane)} {top}V{bottom}"
        lane = picture.lanes[each.lane].storage
        title = tag("title", escape_text(f"{lane.name}@{each.version}"))
        yield tag("path", title, d=way, class_=f"rail {color_of(each.version)}")


def _draw_rows(picture: Picture) -> Iterator[str]:
    """Yield the marks of every row."""
    for number, row in enumerate(picture.rows):
        if row.marks:
            yield from _draw_join(picture, row, y_of(number))
        for mark in row.marks:
            yield from _draw_mark(picture, row, mark, y_of(number))
        if row.home == VALUES:
            yield _draw_value(row, x_of(picture, VALUES), y_of(number))


def _draw_join(picture: Picture, row: Row, y: int) -> Iterator[str]:
    """Yield what joins the marks of a row, and points at what it copies into."""
    places = {
        does: [x_of(picture, mark.lane) for mark in row.marks if mark.does == does] for does in ("writes", "reads")
    }
    everywhere = [x_of(picture, each) for each in (row.home, *(mark.lane for mark in row.marks))]
    if len(set(everywhere)) < 2:
        return
    if places["writes"] and places["reads"]:
        for source in places["reads"]:
            target = min(places["writes"], key=lambda x: abs(x - source))
            side = 1 if source < target else -1
            tip = target - 8 * side
            yield tag("path", d=f"M{source} {y}H{tip}", class_="span")
            yield tag("path", d=f"M{tip - 6 * side} {y - 4}L{tip + side} {y}L{tip - 6 * side} {y + 4}", class_="span")
    is_slope = any(mark.does in ("differentiates", "back") for mark in row.marks)
    joined = everywhere if is_slope or not places["writes"] else places["writes"]
    if len(set(joined)) > 1:
        style = "slope join" if is_slope else "span" if places["writes"] else "track"
        yield tag("path", d=f"M{min(joined)} {y}H{max(joined)}", class_=style)


def _draw_mark(picture: Picture, row: Row, mark: Mark, y: int) -> Iterator[str]:
    """Yield what a row does to one lane, and the version."""
    x, color = x_of(picture, mark.lane), color_of(mark.version)
    label = f"@{mark.version}"
    match mark.does:
        case "writes":
            yield tag("rect", x=x - 6, y=y - 6, width=12, height=12, rx=2.5, class_=f"node full {color}")
            label = f"@{mark.version - 1}→{label}" if mark.version < 10 else f"→{label}"
        case "differentiates":
            yield _draw_triangle(x, y, 7 if mark.lane == row.home else 5, "slope full")
            return
        case "back":
            yield tag("circle", cx=x, cy=y, r=4, class_="slope")
        case "calls":
            filled = "node" if {"no_grad", "frozen"}.intersection(row.flags) else "node full"
            yield tag("circle", cx=x, cy=y, r=6, class_=f"{filled} {color}")
            if "frozen" in row.flags:
                yield tag("circle", cx=x, cy=y, r=2, class_=f"dot {color}")
        case "reads":
            yield tag("circle", cx=x, cy=y, r=4, class_=f"node {color}")
    yield tag("text", escape_text(label), x=x + 8, y=y - 4, class_=f"version {color}")


def _draw_value(row: Row, x: int, y: int) -> str:
    """Return the mark of a row that acts on no storage."""
    match row.kind:
        case "inputs" | "return":
            return tag("rect", x=x - 8, y=y - 3, width=16, height=6, rx=3, class_="value")
        case "random":
            return tag("path", d=f"M{x} {y - 6}l6 6l-6 6l-6 -6z", class_="value")
        case "gradient":
            return _draw_triangle(x, y, 7, "slope full")
        case "evaluate":
            return tag("circle", cx=x, cy=y, r=4.5, class_="value")
        case _:
            return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_="value")


def _draw_triangle(x: int, y: int, size: int, style: str) -> str:
    return tag("path", d=f"M{x} {y - size}l{size} {2 * size - 2}h-{2 * size}z", class_=style)


def _draw_orders(picture: Picture) -> Iterator[str]:
    """Yield the arrows from what is held back to what it waits for; those that hold nothing are shown on demand."""
    for each in picture.orders:
        said = (f"{label_of(picture.rows[each.after])} waits: {why}" for _, why in each.reasons)
        title = tag("title", escape_text("\n".join(said)))
        parts = (
            tag("path", d=_bend_right(picture, each), class_="wait"),
            tag("path", d=_point(picture, each), class_="head"),
        )
        yield tag("g", title, *parts, class_="holds" if each.holds else "order", data_a=each.before, data_b=each.after)


def label_of(row: Row) -> str:
    """Return how a sentence calls a row."""
    return f"{row.kind} {row.op}".rstrip()


def _bend_right(picture: Picture, order: Order) -> str:
    """Return the way from a row to an earlier one, through the tracks on the right of the lanes."""
    track = order.track if order.holds else picture.order_tracks
    x = x_of(picture, VALUES) + (44 + (picture.columns - 1) * LANE if picture.lanes else 0) + 30 + track * 8
    begin, end = (x_of(picture, picture.rows[number].home) for number in (order.after, order.before))
    top, bottom = y_of(order.before) + BELOW, y_of(order.after) + BELOW
    return f"M{begin + 5} {bottom}H{x - BEND}q{BEND} 0 {BEND} -{BEND}V{top + BEND}q0 -{BEND} -{BEND} -{BEND}H{end + 13}"


def _point(picture: Picture, order: Order) -> str:
    x, y = x_of(picture, picture.rows[order.before].home), y_of(order.before)
    return f"M{x + 7} {y + BELOW}l7 -4v8z"


# ---------------------------------------------------------------- files


def draw_plan(plan: CompiledStep, mode: str) -> str:
    """Return the functions of a mode below each other as an SVG file, in the reader's light or dark colours."""
    program = plan.program
    turns = describe_turns(program.mode(mode), program)
    parts: list[str] = []
    top = width = 0
    for function in program.mode(mode).functions:
        picture = lay_out(plan, function)
        when = describe_function(plan, function, turns.get(function.name, ""))
        title = f"{program.name}: {function.name}  ({when})"
        parts.append(tag("text", escape_text(title), x=MARGIN, y=top + 26, class_="title"))
        inside = draw_head(picture) + tag(
            "g", draw_rails(picture), *_draw_lines(picture), transform=f"translate(0 {HEAD})"
        )
        parts.append(tag("g", inside, transform=f"translate(0 {top + 34})"))
        top += 34 + HEAD + height_of(picture) + 24
        width = max(width, _find_width(picture), MARGIN * 2 + 8 * len(title))
    style = read_asset("picture.css", **write_palette(0))
    dark = read_asset("picture.css", **write_palette(1))
    style = f"{style}\n.plan .order {{ display: none; }}\n@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
    title = tag("title", escape_text(f"The {mode} step of {program.name}"))
    paper = tag("rect", width=width, height=top, class_="paper")
    sizes = {"width": width, "height": top, "viewBox": f"0 0 {width} {top}"}
    head = tag("style", escape_text(style))
    return (
        tag("svg", title, head, paper, *parts, xmlns="http://www.w3.org/2000/svg", class_="plan", role="img", **sizes)
        + "\n"
    )


def draw_cell(plan: CompiledStep) -> str:
    """Return the picture of the train step for a notebook; of a spec without one, of its first mode."""
    return tag("div", draw_plan(plan, find_summarized(plan).mode), style="overflow: auto; max-height: 80vh")


def _draw_lines(picture: Picture) -> Iterator[str]:
    """Yield the line of every row with its number and flags, and all of it where the pointer rests."""
    left = width_of(picture)
    for number, row in enumerate(picture.rows):
        y, text = y_of(number), shorten(phrase_of(row))
        known = "" if row.node == "inputs" else str(number + (picture.rows[0].node != "inputs"))
        parts = [
            tag("title", escape_text("\n".join(describe_row(picture, row)))),
            tag("rect", x=0, y=y - ROW // 2, width=_find_width(picture), height=ROW, class_="band"),
            tag("text", escape_text(known), x=left + 20, y=y + 4, text_anchor="end", class_="number"),
            tag("text", escape_text(text), x=left + 30, y=y + 4),
        ]
        x = left + 30 + len(text) * LETTER + 12
        for flag in flags_of_row(picture, row):
            style = "flag wait-flag" if flag == "deferred" else "flag"
            parts.append(tag("rect", x=x, y=y - 8, width=len(flag) * 6.4 + 10, height=16, rx=8, class_="chip"))
            parts.append(tag("text", escape_text(flag), x=x + 5, y=y + 3.5, class_=style))
            x += len(flag) * 6.4 + 16
        yield tag("g", *parts, class_="row")


def _find_width(picture: Picture) -> int:
    """Return the width of a picture with its lines."""
    ends = (
        len(shorten(phrase_of(row))) * LETTER + 12 + sum(len(flag) * 6.4 + 16 for flag in flags_of_row(picture, row))
        for row in picture.rows
    )
    return width_of(picture) + 30 + int(max(ends, default=0)) + MARGIN


def flags_of_row(picture: Picture, row: Row) -> Iterable[str]:
    """Return what is special about a row."""
    return ("deferred", *row.flags) if row.node in picture.deferred else row.flags


def describe_row(picture: Picture, row: Row) -> Iterator[str]:
    """Yield everything about a row that a picture says in colours and signs."""
    yield f"{row.kind} {row.text}"
    yield from describe_marks(picture, row)
    if row.flags:
        yield ", ".join(row.flags)
    if row.node in picture.deferred:
        yield picture.deferred[row.node]


def describe_marks(picture: Picture, row: Row) -> Iterator[str]:
    """Yield what a row does to the lanes that it touches."""
    for mark in row.marks:
        name = picture.lanes[mark.lane].storage.name
        match mark.does:
            case "writes":
                yield f"writes {name}: @{mark.version - 1} -> @{mark.version}"
            case "calls" | "reads":
                yield f"reads {name}@{mark.version}"
            case "differentiates":
                yield f"for {name}"
            case "back":
                yield f"still needs {name}@{mark.version}"


def phrase_of(row: Row) -> str:
    """Return the line of a row: of what is given and returned, with the word."""
    return f"{row.kind} {row.text}" if row.kind in ("inputs", "return") else row.text


def shorten(text: str) -> str:
    """Return as much of a line as fits."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
