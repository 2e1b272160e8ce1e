"""``stepgraph bench``: how long one train step takes, next to loops that somebody wrote by hand."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runtime.cli.inspect import deliver
from runtime.cli.options import (
    Allow,
    Backend,
    BackendOption,
    Device,
    Jit,
    Order,
    OrderOption,
    Overrides,
    Root,
    SpecPath,
)
from runtime.interrupt import Interrupted
from runtime.terminal import counted, has_moving_lines

if TYPE_CHECKING:
    from runtime.bench.loops import Loop


def bench(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    device: Device = "auto",
    order: OrderOption = Order.fewest,
    loop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE.py:FUNCTION", help="Time a loop of yours, too. May be repeated."),
    ] = None,
    jit: Jit = False,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the others are compared with (default: the first --loop).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every variant is timed.")] = 30,
    batches: Annotated[int, typer.Option(min=1, help="How many batches are read, which steps take in turn.")] = 16,
    rows: Annotated[int, typer.Option(min=1, help="The rows of a batch where the spec has no data.")] = 64,
    threads: Annotated[
        int | None, typer.Option(min=1, help="The threads of one operation (default: the framework's).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed, instead of the spec's.")] = None,
    allow: Allow = None,
    root: Root = None,
    report: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Also write the figures as JSON (- for the terminal).")
    ] = None,
) -> None:
    """Time one train step: as it is emitted, as it is built, and as loops of yours take it."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in `stepgraph run`
    loops = _read_loops(loop or (), jit=jit, baseline=baseline)
    from graphspec.loading import load
    from runtime.bench.comparison import BenchRequest
    from runtime.bench.comparison import bench as measure
    from runtime.bench.report import format_table, to_json
    from runtime.train.display import working

    found = measure(
        BenchRequest(
            path=spec,
            spec=load(spec, overrides or (), root=root),
            backend=backend.value,
            device=device,
            order=order.value,
            seed=seed,
            allow=allow or (),
            loops=loops,
            jit=jit,
            baseline=baseline,
            rounds=rounds,
            batches=batches,
            rows=rows,
            threads=threads,
            working=partial(working, sys.stderr, moving=has_moving_lines(sys.stderr)),
            tell=_overwrite,
        )
    )
    if found.timings:
        if report is not None:
            deliver(json.dumps(to_json(found), indent=2), None if str(report) == "-" else report)
        if str(report) != "-":
            deliver(format_table(found), None, is_text=True)
    if found.interrupted:
        sys.stdout.flush()
        raise Interrupted(f"interrupted ({found.interrupted}) after {counted(found.rounds, 'round')} of {rounds}")


def _overwrite(text: str) -> None:
    """Show a line on a terminal in place of the one before; an empty one clears it."""
    if has_moving_lines(sys.stderr):
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K{text[:width]}", end="", file=sys.stderr, flush=True)


def _read_loops(texts: Sequence[str], *, jit: bool, baseline: str | None) -> list[Loop]:
    """Return the loops of some options; wrong usage where a name is taken, or the baseline is none of them."""
    from runtime.bench.loops import read_loop
    from runtime.bench.variants import BUILT, EMITTED, JIT, OURS

    loops: list[Loop] = []
    for text in texts:
        try:
            read = read_loop(text)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--loop'") from error
        if read.name in (*OURS, *(each.name for each in loops)):
            raise typer.BadParameter(f"the name {read.name!r} is taken", param_hint="'--loop'")
        loops.append(read)
    names = (*(each.name for each in loops), EMITTED, BUILT, *((JIT,) if jit else ()))
    if baseline is not None and baseline not in names:
        raise typer.BadParameter(f"{baseline!r} is none of {', '.join(names)}", param_hint="'--baseline'")
    return loops
