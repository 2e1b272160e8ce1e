"""``stepgraph fmt``: specs in the canonical layout, with their comments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from graphspec.diagnostics import SpecError
from graphspec.limits import Limits
from runtime.cli.completion import complete_spec
from runtime.folder import cannot_write
from runtime.terminal import complain, counted, say, show_error

STDIN = "-"

Files: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="SPEC", autocompletion=complete_spec, help="Specs: YAML or JSON files; - reads standard input."
    ),
]
CheckOption: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Write nothing; exit with code 1 where a file would change.")
]
DiffOption: TypeAlias = Annotated[bool, typer.Option("--diff", help="Write nothing; print what would change.")]


def fmt(specs: Files, check: CheckOption = False, diff: DiffOption = False) -> None:
    """Rewrite specs in the canonical layout: order of keys, brackets, quotes. Comments and meaning stay."""
    done, is_sound = list[tuple[str, bool]](), True
    for path in specs:
        try:
            done.append((str(path), _format(path, check=check, diff=diff)))
        except SpecError as error:
            show_error(error)
            is_sound = False
    changed = sum(is_changed for _, is_changed in done)
    if len(done) > 1:
        verb = "would be formatted" if check or diff else "formatted"
        complain(f"{counted(changed, 'file')} {verb}, {len(done) - changed:,} unchanged")
    if not is_sound or (check and changed):
        raise typer.Exit(1)


def _format(path: Path, *, check: bool, diff: bool) -> bool:
    """Format a file, or print what would change in it; return whether it is another text then."""
    import json

    from graphspec.read.source import decode, read_bytes
    from graphspec.write.format import format_document

    is_stdin, limits = str(path) == STDIN, Limits()
    content = sys.stdin.buffer.read(limits.bytes + 1) if is_stdin else read_bytes(path, str(path), limits)
    name = "<stdin>" if is_stdin else str(path)
    before = decode(content, name, limits).content
    shown = name
    if is_stdin and before.lstrip().startswith("{"):  # YAML holds JSON, too, but lays it out in another way
        with contextlib.suppress(ValueError):
            json.loads(before)
            shown = "<stdin>.json"
    after = format_document(before, shown)
    if diff:
        lines: Sequence[str] = before.splitlines()
        for line in unified_diff(lines, after.splitlines(), name, f"{name} (formatted)", lineterm=""):
            say(line)
    elif is_stdin and not check:
        say(after.removesuffix("\n"))
    elif after != before:
        say(f"{'would format' if check else 'formatted'} {name}")
        if not check:
            try:
                path.write_bytes(after.encode("utf-8"))
            except OSError as error:
                raise cannot_write(path, error) from error
    return after != before
