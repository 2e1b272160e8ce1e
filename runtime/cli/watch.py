"""``stepgraph watch``: a spec is checked and its plan shown again whenever a file that it is made of changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from graphspec.diagnostics import SpecError
from runtime.cli.inspect import ModeOption, PlanFormat, Width, plan
from runtime.cli.options import Backend, BackendOption, Mode, Order, OrderOption, Overrides, Root, SpecPath
from runtime.terminal import counted, has_moving_lines, say, show_error

PERIOD = 0.2
"""Seconds between two looks."""
CLEAR = "\x1b[2J\x1b[3J\x1b[H"

State: TypeAlias = tuple[tuple[int, int] | None, ...]


def watch(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    mode: ModeOption = Mode.train,
    width: Width = None,
    root: Root = None,
) -> None:
    """Check a spec and show its plan, again whenever one of its files changes; Ctrl-C ends it."""
    from graphspec.loading import load

    files: tuple[Path, ...] = (spec,)
    seen: State | None = None
    try:
        while True:
            if seen != _look(files):
                # Looked at before the files are read, so that no change is missed.
                before = _look(files)
                if has_moving_lines(sys.stdout):
                    print(CLEAR, end="")
                try:
                    texts = load(spec, overrides or (), root=root).texts()
                except SpecError as error:
                    texts = error.texts  # the files that could be read
                included = (path for path in map(Path, texts) if path != spec and path.is_file())
                known, files = files, (spec, *included)
                try:
                    plan(spec, overrides, backend, order, mode, PlanFormat.text, width=width, root=root)
                except SpecError as error:
                    show_error(error)
                say(f"watching {counted(len(set(files)), 'file')}; Ctrl-C ends it")
                sys.stdout.flush()
                seen = before if files == known else _look(files)
            time.sleep(PERIOD)
    except KeyboardInterrupt:
        return


def _look(files: Iterable[Path]) -> State:
    """Return when each file was written last, and its size; None for one that is not there."""
    found: list[tuple[int, int] | None] = []
    for path in files:
        try:
            seen = path.stat()
            found.append((seen.st_mtime_ns, seen.st_size))
        except OSError:
            found.append(None)  # editors replace a file by moving another into its place
    return tuple(found)
