"""``stepgraph plan``: what happens in a step, in what order, and why."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from graphspec.diagnostics import SpecError
from graphspec.startup import paused_collection
from graphspec.words import closest, enumerate_words
from runtime.cli.bundled import find_bundled
from runtime.cli.completion import complete_name, complete_spec, complete_spec_or_code, keep
from runtime.cli.options import Backend, BackendOption, Mode, Order, OrderOption, Output, Overrides, Root, SpecPath
from runtime.folder import cannot_write
from runtime.problems import problem
from runtime.terminal import complain, counted, say, show, show_error

if TYPE_CHECKING:
    from compiler import Plan
    from compiler.ir.value import Json, Object
    from compiler.plan.why_not import Way
    from graphspec.declare.graph import GraphSpec


@paused_collection
def make_plan(
    path: Path, overrides: Sequence[str] | None, backend: Backend, order: Order, root: Path | None = None
) -> Plan:
    """Return the plan of a spec after printing its warnings; raise SpecError with every problem of it.

    What needs a length that only a run knows becomes a note.
    """
    from compiler import compile_step
    from graphspec.loading import load
    from runtime.train.pace import find_declared_pace

    spec = load(path, overrides or (), root=root)
    plan = compile_step(
        spec, backend=backend.value, order=order.value, pace=find_declared_pace(spec, path), pending=True
    )
    show((*plan.warnings, *plan.pending), spec.texts())
    return plan


_HEAD = re.compile(r" *(?:\d+  \w+ +|[A-Z_]{4,} +|[~>+-] )?")
"""What stands before the words of a line: its number and kind, or its mark."""
NARROWEST = 40


def fit(text: str, width: int | None) -> str:
    """Return a text with its lines broken at words, and continued below their first word.

    The width is that of the terminal by default; what is written elsewhere is not broken.
    """
    if width is None:
        if not sys.stdout.isatty():
            return text
        width = get_terminal_size().columns
    lines: list[str] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        indent = min(head.end() if head is not None else 0, width // 2)
        # Runs of spaces, which align columns, are kept.
        broken = wrap(line, max(width, NARROWEST), subsequent_indent=" " * indent, break_long_words=False, tabsize=1)
        lines.extend(broken or [""])
    return "\n".join(lines) + "\n"


Width: TypeAlias = Annotated[
    int | None,
    typer.Option("--width", min=NARROWEST, help="Break lines at words (default: the width of the terminal)."),
]


def deliver(text: str, output: Path | None, width: int | None = None, *, is_text: bool = False) -> None:
    """Print a text, or write it to a file; raise SpecError (GS234) where the file cannot be written."""
    text = fit(text, width) if is_text and (output is None or width is not None) else text
    if output is None:
        say(text.removesuffix("\n"))
        return
    try:
        output.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise cannot_write(output, error) from error


class PlanFormat(StrEnum):
    """The forms a plan can be printed in."""

    text = "text"
    json = "json"
    mermaid = "mermaid"
    dot = "dot"
    svg = "svg"
    html = "html"


Processes: TypeAlias = Annotated[
    int, typer.Option("--nproc", min=1, help="Show also what so many processes send each other (text and json).")
]
Simulated: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--simulate",
        metavar="CLUSTER",
        help="Show how long a step takes by many processes (text and json): "
        "ranks=8..1024, bandwidth=25GB/s, latency=5us, flops=50TFLOP/s",
    ),
]
ModeOption: TypeAlias = Annotated[Mode, typer.Option("--mode", help="The mode whose plan is shown.")]
PlanFormatOption: TypeAlias = Annotated[
    PlanFormat, typer.Option("--format", help="The form: svg is a picture, html a page for a browser.")
]


def plan(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    mode: ModeOption = Mode.train,
    form: PlanFormatOption = PlanFormat.text,
    nproc: Processes = 1,
    simulated: Simulated = None,
    width: Width = None,
    output: Output = None,
    root: Root = None,
) -> None:
    """Show what happens in a step, in what order, and why; `explain frozen` says what a mark of a line means."""
    if simulated is not None and nproc > 1:
        raise typer.BadParameter("`--simulate` names the numbers of processes itself", param_hint="'--nproc'")
    if simulated is not None and form not in (PlanFormat.text, PlanFormat.json):
        raise typer.BadParameter(f"a simulation is text or json, not {form.value}", param_hint="'--format'")
    made = make_plan(spec, overrides, backend, order, root)
    if nproc > 1 or simulated is not None:
        from runtime.train.together import require_parallel  # imports numpy

        require_parallel(made.spec, max(nproc, 2))
    modes = [program.mode for program in made.program.modes]
    if mode.value not in modes:
        message = f"the step has no mode {mode.value!r}: nothing that it returns is computed there"
        raise problem("GS233", message, help=f"its modes are: {', '.join(modes)}")
    if simulated is not None:
        deliver(_format_simulation(made, mode, form, simulated), output, width, is_text=form is PlanFormat.text)
        return
    deliver(format_plan(made, mode, form, nproc), output, width, is_text=form is PlanFormat.text)
    if form is PlanFormat.text and output is None and sys.stdout.isatty():
        complain("what a mark or a word means: `stepgraph explain frozen`, `stepgraph explain RETAIN`")


def format_plan(plan: Plan, mode: Mode, form: PlanFormat, processes: int = 1) -> str:
    """Return the plan of a mode in a form; as text and JSON with the messages of several processes."""
    match form:
        case PlanFormat.text:
            return plan.text(mode.value, processes=processes)
        case PlanFormat.json:
            whole = json.dumps(plan.to_json(mode.value, processes=processes), indent=2, ensure_ascii=False)
            # What controls a terminal is escaped, except the line breaks of the layout.
            return "".join(c if c.isprintable() or c == "\n" else json.dumps(c).strip('"') for c in whole)
        case PlanFormat.mermaid:
            return plan.mermaid(mode.value)
        case PlanFormat.dot:
            return plan.dot(mode.value)
        case PlanFormat.svg:
            return plan.svg(mode.value)
        case PlanFormat.html:
            return plan.html(mode.value)


def _format_simulation(plan: Plan, mode: Mode, form: PlanFormat, text: str) -> str:
    """Return how a step scales on a cluster that a text describes; raise SpecError (GS239) where it cannot be found."""
    from compiler.plan.simulate.cluster import ClusterProblem
    from compiler.plan.simulate.report import export_simulation, print_simulation
    from compiler.plan.simulate.simulation import simulate
    from runtime.cli.simulated_cluster import CODE, read_cluster

    try:
        simulation = simulate(plan, mode.value, read_cluster(text, plan))
    except ClusterProblem as error:
        raise problem(CODE, error.message, help=error.help) from error
    if form is PlanFormat.json:
        return json.dumps(export_simulation(simulation), indent=2, ensure_ascii=False)
    return print_simulation(simulation)


_CODE = re.compile(r"GS[0-9]+|[EW](-[A-Z]+)+")
_FINDING = re.compile(r"[a-z]+(-[a-z]+)*")


def find_page(code: str) -> str | None:
    """Return the page of a code of a message or an audit, or what a word of a plan means; None for what is neither."""
    from compiler.plan.legend import MARKS, MEANINGS

    meaning = MEANINGS.get(code) or MARKS.get(code)
    if meaning is not None:
        return f"{code}: {meaning}; see docs/plan.md"
    if _CODE.fullmatch(code.upper()):
        page = find_bundled("pages", "docs/errors") / f"{code.upper()}.md"
    elif _FINDING.fullmatch(code):
        page = find_bundled("pages/audit", "docs/audit") / f"{code}.md"
    else:
        return None
    return page.read_text(encoding="utf-8") if page.is_file() else None


def _miss_code(code: str) -> str:
    """Return that there is no message with a code, and the codes most like it."""
    codes = sorted(page.stem for page in find_bundled("pages", "docs/errors").glob("*.md"))
    number = re.fullmatch(r"GS([0-9]+)", code.upper())
    if number is None:
        near = closest(code, codes)
    else:
        known = (each for each in codes if each.startswith("GS"))
        near = tuple(sorted(known, key=lambda each: abs(int(each[2:]) - int(number[1])))[:3])
    return f"there is no code {code!r}" + (
        f"; the nearest are {enumerate_words(near, conjunction='and')}" if near else ""
    )


OpName: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", autocompletion=complete_name, help="An op or a model of the spec; without one, a summary."
    ),
]


WAYS = ("earlier", "later")
"""Where else an op could write."""


def _check_way(text: str | None) -> str | None:
    if text not in (None, *WAYS):
        raise typer.BadParameter(f"{text!r} is not one of {enumerate_words(WAYS, conjunction='and')}")
    return text


def _complete_way(incomplete: str) -> list[str]:
    return keep(WAYS, incomplete)


WhyNotOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--why-not",
        metavar="[earlier|later]",
        callback=_check_way,
        autocompletion=_complete_way,
        help="Tell what would go wrong if the op wrote earlier, or later.",
    ),
]


def explain(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC",
            autocompletion=complete_spec_or_code,
            help="The graph spec; or the code of a message, as GS104, or of a finding, or a word of a plan, as DEFER.",
        ),
    ],
    op: OpName = None,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    not_way: WhyNotOption = None,
    width: Width = None,
    output: Output = None,
    root: Root = None,
) -> None:
    """Tell why an op stands where it stands, or what touches a model; summarize a step; show the page of a code."""
    page = None if op is not None or spec.exists() else find_page(str(spec))
    if page is not None:
        deliver(page, output)
        return
    if op is None and not spec.exists() and _CODE.fullmatch(str(spec).upper()):
        raise typer.BadParameter(_miss_code(str(spec)), param_hint="'SPEC'")
    if op is None and not_way is not None:
        raise typer.BadParameter(f"name the op that would write {not_way}", param_hint="'--why-not'")
    made = make_plan(spec, overrides, backend, order, root)
    try:
        text = made.explain(op) if op is None or not_way is None else made.why_not(op, cast("Way", not_way))
    except KeyError as error:
        raise problem("GS232", str(error.args[0])) from error
    deliver(text, output, width, is_text=True)


Specs: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="SPEC",
        autocompletion=complete_spec,
        help="Graph specs: YAML or JSON files.",
    ),
]


def check(
    specs: Specs,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    root: Root = None,
) -> None:
    """Find every problem of one or more specs; runs nothing and imports nothing that they name."""
    from graphspec.analysis.scope import find_expression

    is_sound = True
    for path in specs:
        opened = _open(path, overrides or (), backend, order, root)
        if opened is None or opened.plan is None:
            is_sound = False
            continue
        plan, spec = opened.plan, opened.spec
        show((*plan.warnings, *plan.pending), spec.texts())
        notes = f", {counted(len(plan.pending), 'note')}" if plan.pending else ""
        updates = sum(op.kind == "update" for op in spec.ops.values())
        ops = sum(find_expression(op) in (None, name) for name, op in spec.ops.items())  # each as it is written
        has = f"{counted(len(spec.models), 'model')}, {counted(ops, 'op')}, {counted(updates, 'update')}"
        say(f"{path}: ok, {counted(len(plan.warnings), 'warning')}{notes} ({has})")
    if not is_sound:
        raise typer.Exit(1)


def emit(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    output: Output = None,
    root: Root = None,
) -> None:
    """Write the step as a Python file that needs the framework alone."""
    from runtime import api

    deliver(api.emit(make_plan(spec, overrides, backend, order, root)), output)


class RenderFormat(StrEnum):
    """The forms a spec can be written in."""

    yaml = "yaml"
    json = "json"


RenderFormatOption: TypeAlias = Annotated[RenderFormat, typer.Option("--format", help="The form of the document.")]


def render(
    spec: SpecPath,
    overrides: Overrides = None,
    form: RenderFormatOption = RenderFormat.yaml,
    output: Output = None,
    root: Root = None,
) -> None:
    """Print a spec with its overrides, every default and every interpolation written out."""
    from graphspec.loading import load
    from graphspec.write.render import render as write
    from graphspec.write.render import to_plain

    loaded = load(spec, overrides or (), root=root)
    if form is RenderFormat.yaml:
        text = write(loaded)
    else:
        try:
            text = json.dumps(to_plain(loaded), indent=2, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            message = "JSON has no number that is infinite or not a number, and the spec has one"
            raise problem("GS238", message, help="leave out `--format json`: YAML has them") from error
    deliver(text, output)


def schema(output: Output = None) -> None:
    """Print the JSON Schema of graph specs, for editors that read one."""
    deliver(files("schemas").joinpath("graphspec.schema.json").read_text(encoding="utf-8"), output)


NOTHING_DECLARED = "declared: nothing is different"


class DiffFormat(StrEnum):
    """The forms a difference can be printed in."""

    text = "text"
    json = "json"
    html = "html"


OldSpec: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="SPEC_A",
        autocompletion=complete_spec,
        help="A graph spec: what was.",
    ),
]
NewSpec: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="SPEC_B",
        autocompletion=complete_spec,
        help="A graph spec: what is.",
    ),
]
DiffFormatOption: TypeAlias = Annotated[DiffFormat, typer.Option("--format", help="The form of the difference.")]
NewOverrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-s", "--set", metavar="KEY=VALUE", help="Override a value of SPEC_B: -s vars.lr=1e-3. May be repeated."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A spec that was read, with its plan where it compiles."""

    path: Path
    spec: GraphSpec
    plan: Plan | None


def diff(
    old: OldSpec,
    new: NewSpec,
    overrides: NewOverrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    form: DiffFormatOption = DiffFormat.text,
    output: Output = None,
    root: Root = None,
) -> None:
    """Show what changes from one spec to another: declarations, schedule, versions and reasons."""
    from compiler.plan.diff import compare_plans, export_difference, format_difference
    from runtime.train.resume import compare_specs

    opened = [_open(old, (), backend, order, root), _open(new, overrides or (), backend, order, root)]
    sides = [side for side in opened if side is not None]
    if len(sides) < 2:
        raise typer.Exit(1)
    before, after = sides
    if before.plan is None or after.plan is None:
        deliver(_format(sides, "", backend, order), output)
        complain("the schedules are not compared: a spec that does not compile has none")
        raise typer.Exit(1)
    difference = compare_plans(before.plan, after.plan)
    if form is DiffFormat.text:
        deliver(_format(sides, format_difference(difference), backend, order), output)
        return
    if form is DiffFormat.html:
        from compiler.plan.page.difference import write_difference

        title, _, changes = _format(sides, "", backend, order).partition("\n\n")
        deliver(write_difference(before.plan, after.plan, title, changes), output)
        return
    head: Object = {"diff": 1, "from": str(old), "to": str(new), "backend": backend.value, "order": order.value}
    declared: list[Json] = [
        {"path": each.path, "before": each.before, "after": each.after}
        for each in compare_specs(before.spec, after.spec)
    ]
    whole: Object = {**head, "declared": declared, **export_difference(difference)}
    deliver(json.dumps(whole, indent=2, ensure_ascii=False), output)


@paused_collection
def _open(path: Path, overrides: Sequence[str], backend: Backend, order: Order, root: Path | None) -> _Opened | None:
    """Return a spec and its plan after printing what is wrong with it; None where it cannot be read."""
    from compiler import compile_step
    from graphspec.loading import load
    from runtime.train.pace import find_declared_pace

    try:
        spec = load(path, overrides, root=root)
    except SpecError as error:
        show_error(error)
        return None
    try:
        plan = compile_step(
            spec, backend=backend.value, order=order.value, pace=find_declared_pace(spec, path), pending=True
        )
    except SpecError as error:
        show_error(error)
        return _Opened(path=path, spec=spec, plan=None)
    return _Opened(path=path, spec=spec, plan=plan)


def _format(sides: Sequence[_Opened], schedule: str, backend: Backend, order: Order) -> str:
    """Return the difference as text: the two specs, the changed declarations, and their effect on the schedule."""
    from runtime.train.resume import compare_specs

    old, new = sides
    changes = compare_specs(old.spec, new.spec)
    title = f"{old.path} -> {new.path}  ({backend.value}, order {order.value})"
    declared = ["declared", *(f"  {change}" for change in changes)] if changes else [NOTHING_DECLARED]
    return "\n".join((title, "", *declared, "", schedule)).rstrip("\n")
