"""Faults: in what a state does not fit the step it is restored into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from graphspec.diagnostics import Diagnostic

FEW = 3
"""How many names a message lists."""
HELP = "restore it into a step that was built from the spec it was saved from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One name that does not fit, what was found and what was expected."""

    kind: Literal["missing", "unexpected", "shape", "type", "value"]
    name: str
    found: str = ""
    expected: str = ""


def tell(faults: Iterable[Fault], notes: tuple[str, ...] = ()) -> Iterator[Diagnostic]:
    """Yield one diagnostic (GS264) for all faults of a kind: how many there are, and the first few."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        yield Diagnostic(code="GS264", message=_message(kind, found), notes=notes, help=HELP)


def _message(kind: str, faults: list[Fault]) -> str:
    """Return what is wrong with all names of a kind."""
    names = [fault.name for fault in faults]
    match kind:
        case "missing":
            return f"the state lacks what the step has: {_list(names, ', ')}"
        case "unexpected":
            return f"the state has what the step lacks: {_list(names, ', ')}"
        case _:
            told = [f"{fault.name} is {fault.found}, expected {fault.expected}" for fault in faults]
            return f"the state has another {kind} than the step: {_list(told, '; ')}"


def _list(entries: list[str], comma: str) -> str:
    """Return the first few entries, and how many more there are."""
    more = len(entries) - FEW
    return comma.join(entries[:FEW]) + (f" and {more} more" if more > 0 else "")
