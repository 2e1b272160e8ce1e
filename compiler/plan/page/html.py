"""The plan as a page: one file that needs nothing else, with the picture, the details of a line, and the spec."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import PurePath

from compiler.ir.value import Json, Object
from compiler.passes.policies import POLICIES
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.explain import explain_node
from compiler.plan.json import export_plan
from compiler.plan.page.picture_layout import Does, Lane, Mark, Picture, Row, Storage, lay_out
from compiler.plan.page.svg import HEAD, Rails, describe_marks, list_flags, phrase_of
from compiler.plan.page.tags import PALETTE, escape_text, read_asset, tag, write_palette
from compiler.plan.reachable_functions import describe_assumption, describe_steps, find_first_dispatches
from compiler.plan.summary import WAITS, find_summarized, list_sections, name_nothing
from compiler.plan.text import describe_function, list_details
from graphspec.diagnostics import Span

COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
LEGEND: tuple[tuple[str, Does | None, int, tuple[str, ...], str], ...] = (
    ("forward", "calls", 1, (), "forward with the weights at the version of this colour"),
    ("forward", "calls", 1, ("no_grad",), "forward without a graph"),
    ("forward", "calls", 1, ("frozen",), "forward with frozen weights"),
    ("gradient", "differentiates", 0, (), "gradient for the weights of the lane"),
    ("gradient", "back", 0, (), "the gradient still needs this version"),
    ("apply", "writes", 1, (), "makes a new version"),
    ("random", None, 0, (), "random numbers"),
    ("evaluate", None, 0, (), "calculation; the lines on the left are values"),
)
ARROW = '<path class="wait" d="M46 13H14"/><path class="head" d="M6 13l8 -4v8z"/>'


def write_page(plan: CompiledStep, mode: str) -> str:
    """Return the plan of a mode as a page of HTML."""
    program = plan.program
    functions = program.mode(mode).functions
    pictures = [lay_out(plan, function) for function in functions]
    script = read_asset("page.js")
    lines = sum(row.place >= 0 for picture in pictures for row in picture.rows)
    sizes = (len(program.models), "model"), (len(functions), "function"), (lines, "line")
    counted = ", ".join(f"{number:,} {name}{'' if number == 1 else 's'}" for number, name in sizes)
    return read_asset(
        "page.html",
        title=escape_text(f"{program.name}: {mode} step"),
        name=escape_text(program.name),
        facts=escape_text(f"{mode} step for {program.backend}, order {program.order} · {counted}"),
        digest=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",
        style=write_style(),
        functions=_write_functions(plan, mode),
        plans="\n".join(_write_plans(plan, mode, pictures)),
        summary=_write_summary(plan),
        source=_write_source(plan, pictures),
        data=_write_data(plan, mode, pictures),
        script=script,
    )


def write_style() -> str:
    """Return the style sheet, in light and dark colours."""
    light, dark = ("".join(f"--{name}:{color};" for name, color in write_palette(which).items()) for which in (0, 1))
    themes = (
        f":root{{color-scheme:light;{light}}}",
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}",
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}",
        f"@media print{{:root:root:root{{color-scheme:light;{light}}}}}",
    )
    picture = read_asset("picture.css", **{name: f"var(--{name})" for name in PALETTE})
    return "\n".join((*themes, picture, read_asset("page.css")))


def address_of(picture: Picture, row: Row | None = None) -> str:
    """Return the name of a function or row in the page, which is what follows `#` in a link."""
    return picture.name + (f"/{row.node}" if row is not None else "")


def link(address: str) -> str:
    """Return the link to a name in the page: `%` and `#` cannot be written as they are."""
    return "#" + address.replace("%", "%25").replace("#", "%23")


def _write_functions(plan: CompiledStep, mode: str) -> str:
    """Return the links to the functions, and the functions of the first steps; nothing where there is one."""
    program = plan.program.mode(mode)
    names = [function.name for function in program.functions]
    if len(names) == 1:
        return ""
    running = describe_steps(program, plan.program)
    tabs = (
        _link_function(
            name, tag("b", str(number)), f" {escape_text(name)}", tag("small", escape_text(running.get(name, "")))
        )
        for number, name in enumerate(names, start=1)
    )
    steps: list[str] = []
    for step, taken in enumerate(find_first_dispatches(program, plan.program), start=1):
        verb = "can take" if taken[1:] else "takes"
        for place, name in enumerate(taken):
            number = tag("small", "or" if place else str(step))
            steps.append(_link_function(name, number, str(names.index(name) + 1), title=f"step {step} {verb} {name}"))
    strip = tag("ol", *steps, class_="strip", aria_labelledby="strip-name")
    title = describe_assumption(program, plan.program) or None
    strip = tag("div", tag("p", "Steps", id="strip-name", title=title), strip) if steps else ""
    slider = tag("input", id="slider", type="range", min="1", max=str(len(names)), aria_label="Function of the step")
    return tag("nav", tag("ol", *tabs, class_="tabs"), slider, strip, aria_label="Functions of the step")


def _link_function(name: str, *content: str, title: str | None = None) -> str:
    return tag("li", tag("a", *content, href=link(name), data_function=name, title=title))


def _write_plans(plan: CompiledStep, mode: str, pictures: Sequence[Picture]) -> Iterator[str]:
    """Yield the functions: name, names of the lanes, and the lines over the rails. All but the first are hidden."""
    program = plan.program.mode(mode)
    steps = describe_steps(program, plan.program)
    for function, picture in zip(program.functions, pictures, strict=True):
        rails = Rails(picture)
        when = describe_function(plan, function, steps.get(function.name, ""))
        title = tag("h2", escape_text(function.name) + " " + tag("small", escape_text(when)))
        sizes = {"class_": "plan", "aria_hidden": "true", "width": rails.width}
        head = tag("div", title, tag("svg", rails.draw_head(), **sizes, height=HEAD), class_="head")
        drawn = tag("svg", rails.draw(), **sizes, height=rails.height)
        rows: list[str] = []
        number = 0
        for row in picture.rows:  # each is a link to itself
            last = number + row.lines if row.place >= 0 else number
            shown = f"{number + 1}-{last}" if row.lines > 1 else str(last)
            number = last
            flags = (tag("span", escape_text(flag), class_=style) for flag, style in list_flags(row))
            unseen = f"; {', '.join(describe_marks(row))}" if row.marks else ""
            address = address_of(picture, row)
            parts = (
                tag("span", shown if row.place >= 0 else "", class_="number"),
                tag("span", escape_text("" if phrase_of(row) != row.text else f"{row.kind} "), class_="hidden"),
                tag("code", escape_text(phrase_of(row))),
                *flags,
                tag("span", escape_text(unseen), class_="hidden"),
            )
            focus = 0 if row is picture.rows[0] else -1
            rows.append(tag("li", tag("a", *parts, id=address, href=link(address), tabindex=focus)))
        listed = tag("ol", *rows, class_="rows")
        body = tag("div", drawn, listed, class_="body", style=f"height:{rails.height}px")
        hidden = None if picture is pictures[0] else ""
        style = f"--left:{rails.width}px"
        yield tag("section", head, body, class_="function", id=function.name, style=style, hidden=hidden)


def _write_summary(plan: CompiledStep) -> str:
    """Return what the panel shows as long as nothing is selected: the step in short, and what the signs mean."""
    sections: list[str] = []
    mode = find_summarized(plan)
    for title, entries in list_sections(plan, mode).items():
        rows = (tag("dt", escape_text(name)) + tag("dd", escape_text(text)) for name, text in entries)
        nothing = name_nothing(entries) if title == WAITS else ""
        body = (tag("dl", *rows) if entries else "") + (tag("p", escape_text(nothing)) if nothing else "")
        sections += [tag("h3", escape_text(title)) + body] if body else []
    for title, sentences in list_details(plan, mode.mode).items():
        items = (tag("li", escape_text(each)) for each in sentences)
        sections.append(tag("h3", escape_text(title)) + tag("ul", *items))
    lane = Storage("model", "")
    signs: list[tuple[str, str]] = []  # drawn by what draws them in the picture
    for kind, does, version, flags, meaning in LEGEND:
        home, marks = (lane, (Mark(lane, does, version),)) if does else (None, ())
        row = Row(node="", op="", kind=kind, text="", home=home, marks=marks, flags=flags)
        lanes = {lane: Lane(column=0, first=0, last=0, versions={version: 0})}
        rails = Rails(Picture(name="", rows=(row,), lanes=lanes))
        signs.append((tag("g", rails.draw(), transform=f"translate({10 - rails.find(home)} 0)"), meaning))
    signs.append((ARROW, "the write on the right waits for what is on the left"))
    meanings = (
        tag("dt", tag("svg", drawn, class_="plan", aria_hidden="true", width=48, height=26))
        + tag("dd", escape_text(meaning))
        for drawn, meaning in signs
    )
    legend = tag("h3", "signs") + tag("dl", *meanings, class_="legend")
    return tag("h2", "Summary") + "".join(sections) + legend


# ---------------------------------------------------------------- the spec


def _write_source(plan: CompiledStep, pictures: Sequence[Picture]) -> str:
    """Return the texts of the spec, the names of ops as links to their first lines."""
    shown = {row.op: link(address_of(picture, row)) for picture in reversed(pictures) for row in reversed(picture.rows)}
    keys = {op: plan.spec.span("ops", op, key=True) for op in shown if op in plan.spec.ops}
    links: dict[tuple[str, int], tuple[Span, str]] = {}
    for op, span in keys.items():
        if span is not None:
            links.setdefault((span.file, span.line), (span, shown[op]))
    parts: list[str] = []
    for number, (name, text) in enumerate(plan.spec.texts().items()):
        lines: list[str] = []
        for at, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
            content = _write_plain(line)
            if (name, at) in links:
                span, address = links[name, at]
                first, last = span.column - 1, span.end_column - 1 if span.end_line == span.line else len(line)
                linked = tag("a", escape_text(line[first:last]), href=address)
                content = _write_plain(line[:first]) + linked + _write_plain(line[last:])
            lines.append(tag("li", content, id=f"line-{number}-{at}"))
        parts.append(tag("h2", escape_text(PurePath(name).name)) + tag("ol", *lines, class_="source"))
    return tag("section", *parts, id="spec", aria_label="The spec", tabindex=0) if parts else ""


def _write_plain(text: str) -> str:
    """Return a part of a line, with its comment."""
    found = COMMENT.search(text)
    if found is None:
        return escape_text(text)
    return escape_text(text[: found.start()]) + tag("i", escape_text(found[0]))


# ---------------------------------------------------------------- data


def _write_data(plan: CompiledStep, mode: str, pictures: Sequence[Picture]) -> str:
    """Return what the script reads: the published plan, and what the details say besides; harmless in an element."""
    files = [*plan.spec.texts()]
    shown = dict.fromkeys(row.op for picture in pictures for row in picture.rows if row.op in plan.spec.ops)
    places: Object = {}
    for op in shown:
        key, value = plan.spec.span("ops", op, key=True), plan.spec.span("ops", op)
        if key is not None:
            last = key.line if value is None or value.file != key.file else value.end_line - (value.end_column == 1)
            places[op] = [files.index(key.file), key.line, max(key.line, last)]
    functions: list[Json] = []
    for picture in pictures:
        graph, policy = plan.graphs[picture.name], POLICIES[plan.program.order]
        rows: list[Json] = []
        for row in picture.rows:
            said = explain_node(graph, graph.nodes[row.node], policy) if row.node in graph.nodes else ()
            rows.append({"node": row.node, "op": row.op, "kind": row.kind, "place": row.place, "said": [*said]})
        values: list[Json] = [[each.value, each.before, each.after] for each in picture.values]
        orders: list[Json] = [
            [each.before, each.after, [[kind, why] for kind, why in each.reasons]] for each in picture.orders
        ]
        functions.append({"name": picture.name, "rows": rows, "values": values, "orders": orders})
    data: Object = {
        "plan": export_plan(plan, mode),
        "functions": functions,
        "places": places,
        "files": [PurePath(name).name for name in files],
    }
    text = json.dumps(data, separators=(",", ":"))  # what is not ASCII is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
