"""The page of an audit: what the program did, line by line, its findings, and the lines of its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path

from compiler.plan.page.html import write_style
from compiler.plan.page.tags import escape_text, tag
from runtime.audit.findings.catalogue import level_of
from runtime.audit.findings.finding import Finding
from runtime.audit.report import Report, format_numbers, summarize
from runtime.audit.trace import (
    NOWHERE,
    Backward,
    Event,
    Forward,
    GradientChange,
    Place,
    ScalerStep,
    ScalerUpdate,
    Tick,
    Trace,
    Unscale,
    Update,
    Write,
)
from runtime.audit.traced_graph import find_first_reads

_CONTEXT = 3
"""Lines of a file that are shown around one that something happens in."""
_STYLE = """
main.audit { display: block; overflow: auto; padding: 0 16px 24px; }
.audit h2 { padding: 16px 0 4px; font-size: 15px; }
.audit article { margin: 8px 0; padding: 8px 12px; border: 1px solid var(--line); border-radius: 6px; }
.audit article { border-left: 4px solid var(--muted); }
.audit article.error { border-left-color: var(--slope); }
.audit article.warning { border-left-color: var(--wait); }
.audit article.question { border-left-color: var(--v2); }
.audit .table { overflow-x: auto; }
.audit table { border-collapse: collapse; }
.audit th { color: var(--muted); font-size: 12px; font-weight: 600; text-align: left; }
.audit td, .audit th { padding: 2px 16px 2px 0; vertical-align: top; white-space: nowrap; }
.audit .first td { border-top: 1px solid var(--line); }
.audit .hit { background: var(--gone); }
.audit .near { background: var(--chosen); }
.audit .source { overflow-x: auto; padding: 8px 0; border: 1px solid var(--line); border-radius: 6px; }
.audit .source li { padding-left: 0; text-indent: 0; overflow-wrap: normal; white-space: pre; }
.audit .source li::before { content: attr(value); }
"""


@dataclass(kw_only=True)
class _Row:
    """Events of one line that belong together."""

    place: Place
    what: str
    reads: dict[str, int] = field(default_factory=dict[str, int])
    writes: dict[str, int] = field(default_factory=dict[str, int])
    """Cells, with their versions; those of gradients have none."""
    flags: dict[str, None] = field(default_factory=dict[str, None])
    starts: bool = False
    """A round of the loop starts with it."""


def write_page(report: Report, title: str) -> str:
    """Return a report as a page that needs no other file and runs nothing."""
    findings = [_write_finding(number, each) for number, each in enumerate(report.findings, 1)]
    unseen = [tag("p", escape_text(f"not seen: {each}")) for each in report.trace.unseen]
    ended = [tag("p", escape_text(f"the program ended with {report.trace.error}"))] if report.trace.error else []
    places = chain(_find_places(report.findings), (row.place for row in _list_rows(report.trace)))
    files = dict.fromkeys(each.file for each in places if each != NOWHERE)
    main = (
        tag("h2", "Findings"),
        *(findings or [tag("p", "None.")]),
        *ended,
        *unseen,
        tag("h2", "What ran"),
        _write_rows(report),
        *chain.from_iterable(_write_file(file, report) for file in files),
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = (
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", escape_text(f"audit of {title}")),
        tag("style", write_style() + _STYLE),
    )
    header = tag("header", tag("h1", escape_text(title)), tag("p", escape_text(summarize(report))))
    body = tag("body", header, tag("main", *main, class_="audit", tabindex=0))
    return f'<!doctype html>\n<html lang="en">\n<head>\n{chr(10).join(head)}\n</head>\n{body}\n</html>\n'


def _write_finding(number: int, finding: Finding) -> str:
    level = level_of(finding)
    heading = tag("h3", escape_text(f"{level}[{finding.code}] "), _link(finding.place))
    others = [tag("li", escape_text(f"{each.what} "), _link(each.place)) for each in finding.others]
    text = tag("p", escape_text(finding.message + format_numbers(finding)))
    return tag("article", heading, text, tag("ul", *others) if others else "", class_=level, id=f"finding-{number}")


def _link(place: Place) -> str:
    """Return a place as a link to its line on the page."""
    return tag("a", escape_text(str(place)), href=f"#{_anchor(place)}") if place != NOWHERE else escape_text(str(place))


def _anchor(place: Place) -> str:
    return f"{place.file}:{place.line}"


# ------------------------------------------------------------ what ran


def _write_rows(report: Report) -> str:
    """Return the events as a table; a line is drawn where a round of the loop starts."""
    found: dict[Place, list[str]] = {}
    for number, finding in enumerate(report.findings, 1):
        for place in dict.fromkeys((finding.place, *(each.place for each in finding.others))):
            link = tag("a", escape_text(finding.code), href=f"#finding-{number}", class_="flag")
            found.setdefault(place, []).append(link)
    lines: list[str] = []
    for row in _list_rows(report.trace):
        cells = (
            _link(row.place),
            tag("code", escape_text(row.what)),
            _write_cells(row.reads),
            _write_cells(row.writes),
            " ".join(
                (*(tag("span", escape_text(each), class_="flag") for each in row.flags), *found.get(row.place, ()))
            ),
        )
        lines.append(tag("tr", *(tag("td", each) for each in cells), class_="first" if row.starts else None))
    names = tag("tr", *(tag("th", each, scope="col") for each in ("line", "what", "reads", "writes", "notes")))
    table = tag("table", tag("thead", names), tag("tbody", *lines))
    return tag("div", table, class_="table", role="region", aria_label="What ran, in order", tabindex=0)


def _write_cells(cells: Mapping[str, int]) -> str:
    shown = (name if version < 0 else f"{name}@{version}" for name, version in cells.items())
    return tag("code", escape_text(", ".join(shown)))


def _list_rows(trace: Trace) -> list[_Row]:
    """Return the events that mean something to the author, those of one line and kind as one row."""
    cells, rows = _Cells(trace), list[_Row]()
    first = next((each.place for each in trace.of(Forward) if each.versions), NOWHERE)
    for event in trace.events:
        made = _describe(cells, event)
        if made is None:
            continue
        last = rows[-1] if rows else None
        if last is not None and (last.place, last.what) == (made.place, made.what) and not isinstance(event, Forward):
            last.reads |= made.reads
            last.writes |= made.writes
            last.flags |= made.flags
        else:
            made.starts = isinstance(event, Forward) and event.place == first
            rows.append(made)
    return rows


class _Cells:
    """The cells of a trace, with versions as findings name them: 0 is the first that anything reads."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        before_models = takewhile(
            lambda each: not isinstance(each, Forward) and (not isinstance(each, Write) or each.by == "code"),
            trace.events,
        )
        written = {each.tensor: each.version for each in before_models if isinstance(each, Write)}
        self._first = {**written, **find_first_reads(trace)}
        self._held: dict[str, int] = {}

    def read(self, tensors: Iterable[tuple[int, int]]) -> dict[str, int]:
        """Return the cells of tensors that are read at some versions."""
        return {self._cell_of(tensor): version - self._first.get(tensor, version) for tensor, version in tensors}

    def write(self, event: Write) -> dict[str, int]:
        """Return the cell that is written; nothing where its initial value is."""
        version = event.version - self._first.get(event.tensor, 0)
        return {self._cell_of(event.tensor): version} if version > 0 else {}

    def hold(self, event: Write) -> None:
        """Note what a step of an optimizer, or a call of a model, writes before it is over."""
        self._held |= self.write(event)

    def take(self) -> dict[str, int]:
        """Return what has been written in a step or call that is over."""
        found, self._held = self._held, {}
        return found

    def _cell_of(self, tensor: int) -> str:
        stored = self.trace.tensors[tensor]
        return f"{stored.model}.{stored.kind}"


def _describe(cells: _Cells, event: Event) -> _Row | None:
    """Return an event as a row; None for what only explains others."""
    trace = cells.trace
    match event:
        case Forward(backward=0) if event.versions:
            reads = cells.read(sorted(event.versions))
            flags = {"no graph": not event.recorded, "eval": not event.training, "compiled": event.compiled}
            flags = {name: None for name, is_set in flags.items() if is_set}
            what = f"{event.model}(...)"
            return _Row(place=event.place, what=what, reads=reads, writes=cells.take(), flags=flags)
        case Backward():
            gains = {f"gradients of {trace.model(each.tensor)}": -1 for each in event.gains}
            reads = cells.read((each.tensor, each.version) for each in event.reads)
            spent = sum(each.seconds for each in event.spent)
            share = [f"{spent / trace.seconds:.0%} of the time"] if spent and trace.seconds else []
            what = "backward" if event.accumulates else "gradients"
            return _Row(place=event.place, what=what, reads=reads, writes=gains, flags=dict.fromkeys(share))
        case Update():
            flags = {"skipped": None} if event.overflow else {}
            return _Row(place=event.place, what=f"{event.optimizer}.step()", writes=cells.take(), flags=flags)
        case Write(by="update" | "forward"):
            cells.hold(event)
            return None
        case Write(by="code" | "backward"):
            writes = cells.write(event)
            return _Row(place=event.place, what=event.writer, writes=writes) if writes else None
        case GradientChange():
            words = {"none": "gradients removed", "zero": "gradients zeroed", "given": "gradients given"}
            what = words.get(event.change, event.function or "gradients changed")
            return _Row(place=event.place, what=what, writes={f"gradients of {trace.model(event.tensor)}": -1})
        case Unscale():
            return _Row(place=event.place, what=f"unscale {event.optimizer}")
        case ScalerStep():
            flags = {"skipped": None} if event.skipped else {}
            return _Row(place=event.place, what=f"scaler.step({event.optimizer})", flags=flags)
        case ScalerUpdate():
            return _Row(place=event.place, what="scaler.update()")
        case Tick():
            return _Row(place=event.place, what=f"{event.schedule}.step()")
        case _:
            return None


# ------------------------------------------------------------ files


def _find_places(findings: Iterable[Finding]) -> Iterator[Place]:
    for finding in findings:
        yield finding.place
        yield from (each.place for each in finding.others)


def _write_file(file: str, report: Report) -> Iterator[str]:
    """Yield the lines of a file in which something happened, with those around them."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    hit = {each.place.line for each in report.findings if each.place.file == file}
    near = {place.line for place in _find_places(report.findings) if place.file == file} - hit
    ran = {row.place.line for row in _list_rows(report.trace) if row.place.file == file}
    shown = {each + away for each in hit | near | ran for away in range(-_CONTEXT, _CONTEXT + 1)}
    items: list[str] = []
    for number in sorted(each for each in shown if 0 < each <= len(lines)):
        class_ = "hit" if number in hit else "near" if number in near else None
        text = escape_text(lines[number - 1]) or " "
        items.append(tag("li", text, value=number, id=_anchor(Place(file, number)), class_=class_))
    yield tag("h2", escape_text(Path(file).name))
    name = f"Lines of {Path(file).name}"
    yield tag("div", tag("ol", *items, class_="source"), role="region", aria_label=name, tabindex=0)
