"""Problems met while running: one diagnostic, raised as the error that every command prints alike."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from graphspec.diagnostics import Diagnostic, Span, SpecError

NO_TEXTS: Mapping[str, str] = MappingProxyType({})


def problem(
    code: str,
    message: str,
    *,
    span: Span | None = None,
    label: str = "",
    notes: tuple[str, ...] = (),
    help: str = "",
    texts: Mapping[str, str] = NO_TEXTS,
) -> SpecError:
    """Return the error of one diagnostic; ``texts`` are the sources its span points into."""
    found = Diagnostic(code=code, message=message, span=span, label=label, notes=notes, help=help)
    return SpecError((found,), texts)
