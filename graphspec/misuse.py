"""Misuse of the functions of this project from Python: what was passed, what is expected, and what to write."""

from __future__ import annotations

from graphspec.diagnostics import Diagnostic, SpecError


def require_kind(value: object, kind: type | tuple[type, ...], what: str, remedy: str) -> None:
    """Raise SpecError (GS275) where an argument is of another type; ``what`` says who takes what."""
    if not isinstance(value, kind):
        found = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise SpecError([Diagnostic(code="GS275", message=f"{what}, found {found}", help=remedy)], {})


def require_name(value: object, names: tuple[str, ...], what: str, remedy: str) -> None:
    """Raise SpecError (GS275) where an argument is none of some names."""
    require_kind(value, str, what, remedy)
    if value not in names:
        raise SpecError([Diagnostic(code="GS275", message=f"{what}, found {value!r}", help=remedy)], {})
