"""Rules on declared names: they are spelled as names, and no two things share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphspec.diagnostics import Diagnostic
from graphspec.names import KEYWORDS, is_name
from graphspec.scope import Entry, Scope


def check_spelling(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse names that the generated source could not use."""
    for name, (entry, *_) in scope.entries.items():
        if is_name(name):
            continue
        why = "is a word of Python" if name in KEYWORDS else "is not a name"
        help = "a name has letters, digits and `_`, does not begin with a digit, and is no word of Python"
        yield scope.report("GS102", f"{name!r} {why}", entry.path, key=entry.is_key, help=help)


def check_clashes(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a second declaration of a name: inputs, states, models, ops and values share one namespace."""
    for entries in scope.entries.values():
        yield from _check_clash(scope, entries)


def _check_clash(scope: Scope, entries: tuple[Entry, ...]) -> Iterable[Diagnostic]:
    first, *others = entries
    for other in others:
        message = f"'{other.name}' is declared twice: as {first.role}{scope.place(first)} and as {other.role}"
        help = "inputs, states, models, ops and values share one namespace: rename one of them"
        yield scope.report("GS101", message, other.path, key=other.is_key, label="declared again here", help=help)
