"""``stepgraph run``: train."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runtime.commands.options import Backend, BackendOption, Order, OrderOption, Overrides, SpecPath
from runtime.commands.planning import make_plan
from runtime.imports import is_package
from runtime.interrupt import Interrupted
from runtime.terminal import has_moving_lines


def _check_packages(names: list[str] | None) -> list[str]:
    for name in names or ():
        if not is_package(name):
            raise typer.BadParameter(f"{name!r} is not the name of a package")
    return names or []


Device: TypeAlias = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
Seed: TypeAlias = Annotated[int | None, typer.Option("--seed", help="The seed, instead of the spec's.")]
Steps: TypeAlias = Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train, instead of the spec's.")]
Out: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The folder to write to (default: runs/<name>).")
]
Allow: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PACKAGE",
        callback=_check_packages,
        help="Import classes out of this package. May be repeated.",
    ),
]
PlainOption: TypeAlias = Annotated[bool, typer.Option("--plain", help="Print lines instead of a progress bar.")]


def run(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    device: Device = "auto",
    order: OrderOption = Order.fewest,
    seed: Seed = None,
    steps: Steps = None,
    out: Out = None,
    allow: Allow = None,
    plain: PlainOption = False,
) -> None:
    """Train: run the spec's step on its data, and write metrics, curves, pictures and a checkpoint."""
    # OpenMP's threads spin while they wait; where another process needs the cores, that makes small steps some twenty
    # times slower. Sleeping instead costs little. It is read when a framework is first imported, so it is set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from runtime.session import Request, perform

    request = Request(
        path=spec,
        plan=make_plan(spec, overrides, backend, order),
        device=device,
        seed=seed,
        steps=steps,
        out=out,
        allow=allow or (),
        stream=sys.stdout,
        moving=not plain and has_moving_lines(sys.stdout),
    )
    outcome = perform(request)
    if outcome.interrupted:
        raise Interrupted(f"interrupted after step {outcome.steps:,}; what was trained so far is saved")
