"""The picture of a step as SVG: the rails that the page shows too, and whole files."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.plan.compiled_step import CompiledStep
from compiler.plan.page.picture_layout import MOST_LANES, Mark, Picture, Row, Storage, lay_out
from compiler.plan.page.tags import escape_text, read_asset, tag, write_palette
from compiler.plan.reachable_functions import describe_steps
from compiler.plan.summary import find_summarized
from compiler.plan.text import describe_function

ROW, TRACK, LANE, MARGIN = 26, 7, 46, 12
NARROWEST = 14
"""The distance of lanes where there are many."""
HEAD = 92
"""The height of the names above the lanes."""
BEND = 5
GAP = 4
"""Values leave a row so far below its middle, and reach one so far above; orders are below what joins its marks."""
LETTER, SMALL = 7.25, 6.4
"""The widths of the letters of lines and flags, in any monospaced font."""
WIDEST = 84
LONGEST_NAME, LONG_FLAG = 18, 20


class Rails:
    """A picture with the places of its lanes and tracks."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        tracks = 1 + max((edge.track for edge in picture.values), default=-1)
        columns = 1 + max((lane.column for lane in picture.lanes.values()), default=-1)
        self.values = MARGIN + tracks * TRACK + 8
        self.pitch = max(NARROWEST, min(LANE, MOST_LANES * LANE // max(columns, 1)))
        self.gutter = self.values + 28 + columns * self.pitch
        """Where the tracks of orders begin."""
        held = 1 + max((each.track for each in picture.orders if each.track is not None), default=-1)
        self.shared = self.gutter + held * 8
        """The track of the orders that hold nothing back: they are shown for one row at a time."""
        self.width = self.shared + (14 if picture.orders else 0)
        """The lines stand to the right of it."""
        self.height = len(picture.rows) * ROW
        self.is_crowded = columns < len(picture.lanes)

    def find(self, storage: Storage | None) -> int:
        """Return the place of a lane, or that of the values."""
        return self.values if storage is None else self.values + 44 + self.picture.lanes[storage].column * self.pitch

    def find_row(self, number: int) -> tuple[int, int]:
        """Return the middle of a row in the lane in which it acts."""
        return self.find(self.picture.rows[number].home), find_middle(number)

    def draw_head(self) -> str:
        """Return the names of the lanes, at a slant above them."""
        names = {} if self.is_crowded else {storage: storage.name for storage in self.picture.lanes}
        return "".join(
            tag(
                "text",
                escape_text(shorten(name, LONGEST_NAME)),
                class_="name" if storage else "name soft",
                transform=f"translate({self.find(storage) + 3} {HEAD - 8}) rotate(-38)",
            )
            for storage, name in {None: "values", **names}.items()
        )

    def draw(self) -> str:
        """Return tracks, lanes, what every row does to them, and what holds it back: all but the lines."""
        rows = self.picture.rows
        tracks: list[str] = []
        for edge in self.picture.values:  # from its row to its track, down, and to the row that reads it
            x = self.values - 8 - (edge.track + 1) * TRACK
            (begin, top), (end, bottom) = self.find_row(edge.before), self.find_row(edge.after)
            turns = f"q-{BEND} 0 -{BEND} {BEND}V{bottom - GAP - BEND}q0 {BEND} {BEND} {BEND}"
            way = f"M{begin} {top + GAP}H{x + BEND}{turns}H{end}"
            tracks.append(tag("path", d=way, class_="track", data_a=edge.before, data_b=edge.after))
        lanes = [tag("path", d=f"M{self.values} 0V{self.height}", class_="rule")]
        for storage, lane in self.picture.lanes.items():
            ends = (*[*lane.versions.values()][1:], lane.last)
            for (version, first), last in zip(lane.versions.items(), ends, strict=True):
                top = 0 if first == 0 else find_middle(first)
                bottom = self.height if last == len(rows) - 1 else find_middle(last)
                title = tag("title", escape_text(f"{storage.name}@{version}"))
                way = f"M{self.find(storage)} {top}V{bottom}"
                lanes.append(tag("path", title, d=way, class_=f"rail {find_color(version)}"))
        marks = (part for number, row in enumerate(rows) for part in self._draw_row(row, number))
        orders: list[str] = []
        for order in self.picture.orders:  # from a row to an earlier one, on the right of the lanes
            x = self.shared if order.track is None else self.gutter + order.track * 8
            (begin, bottom), (end, top) = self.find_row(order.after), self.find_row(order.before)
            turns = f"q{BEND} 0 {BEND} -{BEND}V{top + GAP + BEND}q0 -{BEND} -{BEND} -{BEND}"
            way = f"M{begin + 5} {bottom + GAP}H{x - BEND}{turns}H{end + 13}"
            said = (f"{label_of(rows[order.after])} waits: {why}" for _, why in order.reasons)
            parts = (
                tag("title", escape_text("\n".join(said))),
                tag("path", d=way, class_="wait"),
                tag("path", d=f"M{end + 7} {top + GAP}l7 -4v8z", class_="head"),
            )
            kind = "order" if order.track is None else "holds"
            orders.append(tag("g", *parts, class_=kind, data_a=order.before, data_b=order.after))
        return "".join((tag("g", *tracks), *lanes, *marks, *orders))

    def _draw_row(self, row: Row, number: int) -> Iterator[str]:
        """Yield the marks of a row and what joins them, with an arrow into what is made of another."""
        y = find_middle(number)
        written, read = ([self.find(each.storage) for each in row.marks if each.does == x] for x in ("writes", "reads"))
        places = [self.find(row.home), *(self.find(mark.storage) for mark in row.marks)]
        if min(places) < max(places):
            for source in read if written else ():
                target = min(written, key=lambda x: abs(x - source))
                side = 1 if source < target else -1
                tip = target - 7 * side
                yield tag("path", d=f"M{source} {y}H{tip}m{-6 * side} -4L{tip} {y}l{-6 * side} 4", class_="span")
            is_slope = any(mark.does in ("differentiates", "back") for mark in row.marks)
            joined = places if is_slope or not written else written
            style = "slope join" if is_slope else "span" if written else "track"
            yield tag("path", d=f"M{min(joined)} {y}H{max(joined)}", class_=style)
        for mark in row.marks:
            yield from draw_mark(row, mark, self.find(mark.storage), y, is_labelled=self.pitch > LANE // 2)
        if row.home is None:
            yield draw_value(row, self.values, y)


def find_middle(row: int) -> int:
    """Return the height of the middle of a row."""
    return row * ROW + ROW // 2


def find_color(version: int) -> str:
    """Return the class of the colour of a version: after the first, three take turns."""
    return f"v{version and (version - 1) % 3 + 1}"


def draw_mark(row: Row, mark: Mark, x: int, y: int, *, is_labelled: bool) -> Iterator[str]:
    """Yield what a row does to one lane, and the version."""
    color, label = find_color(mark.version), f"@{mark.version}"
    match mark.does:
        case "writes":
            yield tag("rect", x=x - 6, y=y - 6, width=12, height=12, rx=2.5, class_=f"node full {color}")
            label = f"@{mark.version - 1}→{label}" if mark.version < 10 else f"→{label}"
        case "differentiates":
            yield draw_triangle(x, y, 7 if mark.storage == row.home else 5)
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
    if is_labelled:
        yield tag("text", escape_text(label), x=x + 8, y=y - 4, class_=f"version {color}")


def draw_value(row: Row, x: int, y: int) -> str:
    """Return the mark of a row that acts on no storage."""
    match row.kind:
        case "gap":
            return ""
        case "inputs" | "return":
            return tag("rect", x=x - 8, y=y - 3, width=16, height=6, rx=3, class_="value")
        case "random":
            return tag("path", d=f"M{x} {y - 6}l6 6l-6 6l-6 -6z", class_="value")
        case "gradient":
            return draw_triangle(x, y, 7)
        case "evaluate":
            return tag("circle", cx=x, cy=y, r=4.5, class_="value")
        case _:
            return tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9, class_="value")


def draw_triangle(x: int, y: int, size: int) -> str:
    """Return the mark of a gradient."""
    return tag("path", d=f"M{x} {y - size}l{size} {2 * size - 2}h-{2 * size}z", class_="slope full")


# ---------------------------------------------------------------- words


def label_of(row: Row) -> str:
    """Return how a sentence calls a row."""
    return f"{row.kind} {row.op}".rstrip()


def phrase_of(row: Row) -> str:
    """Return the line of a row: of what is given and returned, with the word."""
    return f"{row.kind} {row.text}" if row.kind in ("inputs", "return") else row.text


def list_flags(row: Row) -> Iterator[tuple[str, str]]:
    """Yield what is special about a row, with the classes in which it is shown."""
    yield from (("deferred", "flag wait-flag"),) if row.deferred else ()
    yield from ((flag, "flag" if len(flag) <= LONG_FLAG else "flag long") for flag in row.flags)


def describe_marks(row: Row) -> Iterator[str]:
    """Yield in words what a row does to the lanes that it touches."""
    for storage, does, version in row.marks:
        match does:
            case "writes":
                yield f"writes {storage.name}: @{version - 1} -> @{version}"
            case "calls" | "reads":
                yield f"reads {storage.name}@{version}"
            case "differentiates":
                yield f"for {storage.name}"
            case "back":
                yield f"still needs {storage.name}@{version}"


def shorten(text: str, most: int = WIDEST) -> str:
    """Return as much of a text as fits."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# ---------------------------------------------------------------- files


def draw_plan(plan: CompiledStep, mode: str) -> str:
    """Return the functions of a mode below each other as an SVG file, in the reader's light or dark colours."""
    program = plan.program
    steps = describe_steps(program.mode(mode), program)
    parts: list[str] = []
    top = width = 0
    for function in program.mode(mode).functions:
        rails = Rails(lay_out(plan, function))
        when = describe_function(plan, function, steps.get(function.name, ""))
        title = shorten(f"{program.name}: {function.name}  ({when})", WIDEST + 40)
        lines, wide = _draw_lines(rails)
        body = tag("g", rails.draw(), lines, transform=f"translate(0 {34 + HEAD})")
        names = tag("g", rails.draw_head(), transform="translate(0 34)")
        heading = tag("text", escape_text(title), x=MARGIN, y=26, class_="title")
        parts.append(tag("g", heading, names, body, transform=f"translate(0 {top})"))
        top, width = top + 34 + HEAD + rails.height + 24, max(width, wide, MARGIN * 2 + 8 * len(title))
    light, dark = (read_asset("picture.css", **write_palette(which)) for which in (0, 1))
    style = f"{light}.plan .order {{ display: none; }}\n@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
    head = (
        tag("title", escape_text(f"The {mode} step of {program.name}")),
        tag("style", escape_text(style)),
        tag("rect", width=width, height=top, class_="paper"),
    )
    sizes = {"width": width, "height": top, "viewBox": f"0 0 {width} {top}"}
    return tag("svg", *head, *parts, xmlns="http://www.w3.org/2000/svg", class_="plan", role="img", **sizes) + "\n"


def draw_cell(plan: CompiledStep) -> str:
    """Return the picture of the train step for a notebook; of a spec without one, of its first mode."""
    return tag("div", draw_plan(plan, find_summarized(plan).mode), style="overflow: auto; max-height: 80vh")


def _draw_lines(rails: Rails) -> tuple[str, int]:
    """Return the line of every row with number and flags, and in words where the pointer rests; and how wide it is."""
    left, right = rails.width, 0
    rows: list[list[str]] = []
    known = 0
    for number, row in enumerate(rails.picture.rows):
        y, text = find_middle(number), shorten(phrase_of(row))
        known += row.lines if row.place >= 0 else 0
        about = (f"{row.kind} {row.text}", *describe_marks(row), *row.flags, row.deferred)
        parts = [
            tag("title", escape_text("\n".join(filter(None, about)))),
            tag("text", escape_text(str(known or "")), x=left + 20, y=y + 4, text_anchor="end", class_="number"),
            tag("text", escape_text(text), x=left + 30, y=y + 4),
        ]
        x = left + 42 + len(text) * LETTER
        for flag, style in list_flags(row):
            parts.append(tag("rect", x=x, y=y - 8, width=len(flag) * SMALL + 10, height=16, rx=8, class_="chip"))
            parts.append(tag("text", escape_text(flag), x=x + 5, y=y + 3.5, class_=style))
            x += len(flag) * SMALL + 16
        rows.append(parts)
        right = max(right, int(x) + MARGIN)
    bands = (tag("rect", x=0, y=at * ROW, width=right, height=ROW, class_="band") for at in range(len(rows)))
    return "".join(tag("g", band, *parts, class_="row") for band, parts in zip(bands, rows, strict=True)), right
