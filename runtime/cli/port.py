"""``stepgraph port``: the spec of a training loop that somebody wrote by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.audit import Arguments, Script, keep_place, show_error_of
from runtime.cli.inspect import deliver
from runtime.terminal import PROBLEM, complain, counted


def port(
    script: Script,
    arguments: Arguments = None,
    steps: Annotated[int, typer.Option(min=2, help="Record so many steps of every optimizer.")] = 3,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the spec to a file, not the terminal.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Also write what was found as JSON.")
    ] = None,
) -> None:
    """Write the spec of a training program: record some steps, and compare them with those of the spec."""
    from runtime.port.porting import NothingToPort, port_script
    from runtime.port.values import TODO

    # The program may change the working directory.
    output, report = keep_place(output), keep_place(report)
    try:
        made, problem = port_script(script, arguments or (), steps)
    except NothingToPort as error:
        complain(f"nothing to port: {error}")
        raise typer.Exit(PROBLEM) from error
    if isinstance(problem, Exception):
        show_error_of(problem)
    deliver(made.text, output)
    complain(
        f"{counted(len(made.todos), TODO)}, {counted(len(made.questions), 'question')}"
        + "".join(f"\n  {TODO} {each}" for each in made.todos)
    )
    if made.agreement is None:
        complain(f"not compared: {made.problem}")
    else:
        found = made.agreement
        verdict = "equal up to rounding" if found.is_close else "not the same"
        complain(
            f"{counted(found.steps, 'step')} of both from the same numbers: {verdict} "
            f"(losses differ by at most {found.losses:.2g}, weights by {found.weights:.2g}, "
            f"{found.share:.2g} of how far they move)"
        )
    if report is not None:
        agreement = (
            None
            if made.agreement is None
            else {
                "steps": made.agreement.steps,
                "losses": made.agreement.losses,
                "weights": made.agreement.weights,
                "share": made.agreement.share,
            }
        )
        content = {"todos": list(made.todos), "questions": list(made.questions), "agreement": agreement}
        deliver(json.dumps({**content, "problem": made.problem}, indent=2), report)
