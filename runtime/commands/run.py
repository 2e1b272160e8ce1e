"""``stepgraph run``: train."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runtime.commands.options import Allow, Backend, Device, Order, OrderOption, Overrides, SpecPath, Xla
from runtime.interrupt import Interrupted
from runtime.terminal import has_moving_lines, say


class Debugging(StrEnum):
    """What a debugged run looks for."""

    nan = "nan"


Framework: TypeAlias = Annotated[
    Backend | None,
    typer.Option("--backend", help="The framework the step is made for (default: torch; of a run that goes on: its)."),
]
Seed: TypeAlias = Annotated[int | None, typer.Option("--seed", help="The seed, instead of the spec's.")]
Steps: TypeAlias = Annotated[int | None, typer.Option("--steps", min=1, help="Steps to train, instead of the spec's.")]
Out: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The folder to write to (default: runs/<name>).")
]
PlainOption: TypeAlias = Annotated[bool, typer.Option("--plain", help="Print lines instead of a progress bar.")]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --out, or with the newest run of the spec.")
]
Debug: TypeAlias = Annotated[
    Debugging | None, typer.Option("--debug", help="nan: stop at the first value that is not finite, and name it.")
]
Replay: TypeAlias = Annotated[
    Path | None, typer.Option("--replay", metavar="DIR", help="Take one step again that --debug nan kept.")
]


def run(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: Framework = None,
    device: Device = "auto",
    order: OrderOption = Order.fewest,
    seed: Seed = None,
    steps: Steps = None,
    out: Out = None,
    resume: Resume = False,
    debug: Debug = None,
    replay: Replay = None,
    xla: Xla = False,
    allow: Allow = None,
    plain: PlainOption = False,
) -> None:
    """Train: run the spec's step on its data, and write metrics, curves, pictures and checkpoints."""
    # OpenMP's threads spin while they wait; where another process needs the cores, that makes small steps some twenty
    # times slower. Sleeping instead costs little. It is read when a framework is first imported, so it is set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from graphspec.load import load
    from runtime.runs.running import perform, retake
    from runtime.runs.session import Request

    request = Request(
        path=spec,
        spec=load(spec, overrides or ()),
        overrides=tuple(overrides or ()),
        backend=None if backend is None else backend.value,
        order=order.value,
        device=device,
        seed=seed,
        steps=steps,
        out=out,
        allow=allow or (),
        resume=resume,
        debug="nan" if debug is not None or replay is not None else None,
        jit_compile=xla,
        stream=sys.stdout,
        moving=not plain and has_moving_lines(sys.stdout),
    )
    if replay is not None:
        outputs = "".join(f"  {name} {value:.6g}" for name, value in retake(request, replay).items())
        say(f"the step raises nothing and everything is finite{outputs}")
        return
    outcome = perform(request)
    if outcome.interrupted:
        told = f"interrupted ({outcome.interrupted}) after step {outcome.state.made:,}"
        raise Interrupted(f"{told}; what was trained so far is saved, and --resume goes on with it")
