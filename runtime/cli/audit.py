"""``stepgraph audit``: what is wrong with a training loop that somebody wrote by hand."""

from __future__ import annotations

import json
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.inspect import deliver
from runtime.terminal import PROBLEM, complain

Script = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A Python program that trains with PyTorch.")
]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.")]
_OURS = str(Path(__file__).parents[1])


def audit(
    script: Script,
    arguments: Arguments = None,
    steps: Annotated[int, typer.Option(min=1, help="Stop after so many steps of every optimizer.")] = 3,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    report: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Also write the report as JSON (- for the terminal).")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write it as SARIF 2.1.0, which code hosts show.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write it as a page: findings, what ran, and the lines.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A file of findings that are known and left out.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write what is found to that file, instead of reading it.")
    ] = False,
) -> None:
    """Run some steps of a training program as `python FILE` would, and say what is wrong with them, with its lines."""
    from runtime.audit.report import fingerprint, to_json, to_sarif
    from runtime.audit.session import audit_script

    if update_baseline and baseline is None:
        raise typer.BadParameter("--update-baseline needs --baseline PATH", param_hint="--update-baseline")
    if baseline is not None and not update_baseline and not baseline.is_file():
        raise typer.BadParameter(
            f"there is no file {str(baseline)!r}: write it with --update-baseline", param_hint="--baseline"
        )
    if baseline is not None and not update_baseline:
        check_baseline(baseline)
    # The program may change the working directory.
    report, sarif, html, baseline = map(keep_place, (report, sarif, html, baseline))
    made, problem = audit_script(script, arguments or (), steps)
    if isinstance(problem, Exception):
        show_error_of(problem)
    if baseline is not None and update_baseline and not isinstance(problem, KeyboardInterrupt):
        deliver("".join(f"{fingerprint(each)}\n" for each in made.findings), baseline)
    if baseline is not None:
        made = made.accept(baseline.read_text(encoding="utf-8").splitlines())
    if report is not None:
        deliver(json.dumps(to_json(made), indent=2), None if str(report) == "-" else report)
    if sarif is not None:
        try:
            own = version("stepgraph")
        except PackageNotFoundError:
            own = "0"
        deliver(json.dumps(to_sarif(made, own), indent=2), sarif)
    if html is not None:
        from runtime.audit.page import write_page

        deliver(write_page(made, script.name), html)
    if str(report) != "-":
        sys.stdout.flush()
        deliver(str(made), None, is_text=True)
        if made.findings and sys.stdout.isatty():
            complain(f"what a finding means and how to fix it: `stepgraph explain {made.findings[0].code}`")
    if isinstance(problem, SystemExit):
        printed = f"{problem.code}\n" if isinstance(problem.code, str) else ""
        complain(f"{printed}exit code {PROBLEM}: the program ended with {made.trace.error}")
    if isinstance(problem, KeyboardInterrupt):
        raise problem
    if problem is not None or made.of("error") or (strict and made.of("warning")):
        raise typer.Exit(PROBLEM)


def check_baseline(baseline: Path) -> None:
    """Refuse a file of known findings that names one which no audit has."""
    from graphspec.words import did_you_mean
    from runtime.audit.findings.catalogue import CODES

    for number, line in enumerate(baseline.read_text(encoding="utf-8").splitlines(), 1):
        code = line.partition(" ")[0]
        if code and code not in CODES:
            near = did_you_mean(code, CODES)
            message = f"line {number} of {str(baseline)!r} begins with {code!r}, which is no finding of an audit"
            raise typer.BadParameter(f"{message}{near and f': {near}'}", param_hint="--baseline")


def keep_place(path: Path | None) -> Path | None:
    """Return a path that means the same in another working directory; - is the terminal."""
    return path if path is None or str(path) == "-" else path.absolute()


def show_error_of(error: Exception) -> None:
    """Print the traceback of what ended a program, without the frames of this project, as a plain run shows it."""
    shown = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [shown]
    while chain:
        if (link := chain.pop()) is not None:
            kept = (each for each in link.stack if not each.filename.startswith((_OURS, "<frozen runpy>")))
            link.stack = traceback.StackSummary.from_list(list(kept))
            chain += [link.__cause__, link.__context__]
    complain("".join(shown.format()).rstrip())
