"""What a shell completes: specs, ops, codes, runs and checkpoints. A mistake in a spec completes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from graphspec.diagnostics import SpecError
from runtime.cli.bundled import find_bundled
from runtime.folder import RECORD

CHOICES = ("best", "newest")
"""The checkpoints that have a name."""
SUFFIXES = (".yaml", ".yml", ".json")


def complete_spec(incomplete: str) -> list[str]:
    """Return the specs, and the folders that may hold some, that a path may become."""
    return [text for text, path in _list_paths(incomplete) if path.is_dir() or path.suffix in SUFFIXES]


def complete_spec_or_code(incomplete: str) -> list[str]:
    """Return specs, and the codes of messages where some letters of one are typed."""
    folders = (find_bundled("pages", "docs/errors"), find_bundled("pages/audit", "docs/audit"))
    pages = (page.stem for folder in folders for page in folder.glob("*.md"))
    codes = sorted(page for page in pages if incomplete and page.startswith(incomplete))
    return [*codes, *complete_spec(incomplete)]


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ops and models of the spec on the command line, without the parts of its expressions."""
    from graphspec.loading import load

    spec = ctx.params.get("spec")
    try:
        found = None if spec is None else load(Path(spec))
    except (SpecError, OSError):
        return []
    if found is None:
        return []
    lines = (name for name, op in found.ops.items() if getattr(op, "expr", None) in (None, name))
    return keep((*lines, *found.models), incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return the folders of runs, and those that may hold some, that a path may become."""
    found = [(text, path) for text, path in _list_paths(incomplete) if path.is_dir()]
    if not found and (Path(incomplete) / RECORD).is_file():
        return [incomplete]
    return [text.removesuffix("/") if (path / RECORD).is_file() else text for text, path in found]


def complete_checkpoint(incomplete: str) -> list[str]:
    """Return the checkpoints that have a name."""
    return keep(CHOICES, incomplete)


def keep(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin like one."""
    return [name for name in names if name.startswith(incomplete)]


def _list_paths(incomplete: str) -> Iterator[tuple[str, Path]]:
    """Yield the paths that begin like one, as they are typed; folders end with a slash. Hidden ones must be begun.

    What is in a folder comes instead of it where nothing else begins so: a shell would end the word after its name.
    """
    found = _list_folder(incomplete)
    while len(found) == 1:
        name, path = found[0]
        # The folder of a run is not opened.
        inside = _list_folder(name) if path.is_dir() and not (path / RECORD).is_file() else []
        if not inside:
            break
        found = inside
    yield from found


def _list_folder(incomplete: str) -> list[tuple[str, Path]]:
    start, slash, name = incomplete.rpartition("/")
    try:
        entries = sorted(Path(f"{start}{slash}" or ".").expanduser().iterdir())
    except OSError:
        return []
    shown = (path for path in entries if path.name.startswith(name) and path.name.startswith(".") <= bool(name))
    return [(f"{start}{slash}{path.name}{'/' if path.is_dir() else ''}", path) for path in shown]
