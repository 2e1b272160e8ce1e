"""Which frameworks a module of tests needs to be imported at all, found by reading it and what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

FRAMEWORKS: Mapping[str, str] = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "lightning": "lightning",
}
"""The framework that a top-level module belongs to."""
FOLDERS = ("tests", "benchmarks", "examples", "runtime")
"""Where modules lie that may import a framework."""


def find_needed(path: Path, root: Path) -> frozenset[str]:
    """Return the frameworks that a module imports, or the modules that it imports, wherever that happens at once.

    Imports inside functions and behind conditions do not count.
    """
    seen, waiting, needed = {path}, [path], set[str]()
    while waiting:
        names = _read_imports(waiting.pop())
        needed.update(FRAMEWORKS[name] for name in map(_find_top, names) if name in FRAMEWORKS)
        found = {file for name in names for file in _find_files(name, root)} - seen
        seen |= found
        waiting += found
    return frozenset(needed)


@cache
def _read_imports(path: Path) -> tuple[str, ...]:
    """Return what a module imports at its top level; of `from a import b`, both a and a.b, as b may be a module."""
    statements = ast.parse(path.read_bytes()).body
    return tuple(name for statement in statements for name in _find_names(statement))


def _find_names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            yield module
            yield from (f"{module}.{alias.name}" for alias in names)
        case _:
            pass


def _find_files(name: str, root: Path) -> Iterator[Path]:
    """Yield the files that are run when a module of the project is imported: its packages', and its own."""
    parts = name.split(".")
    if parts[0] not in FOLDERS:
        return
    for count in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:count])
        yield from (file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file())


def _find_top(name: str) -> str:
    return name.partition(".")[0]
