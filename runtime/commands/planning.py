"""Load and compile a spec as the options of a command say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.commands.options import Backend, Order
from runtime.terminal import show

if TYPE_CHECKING:
    from compiler import Plan


def make_plan(
    path: Path, overrides: Sequence[str] | None, backend: Backend, order: Order, *, pending: bool = True
) -> Plan:
    """Return the plan of a spec after printing its warnings; raise SpecError with every problem of it.

    With ``pending``, what needs a length that only a run knows is a note.
    """
    from compiler import compile_step
    from graphspec.load import load
    from runtime.pacing import find_pace

    spec = load(path, overrides or ())
    plan = compile_step(spec, backend=backend.value, order=order.value, pace=find_pace(spec, path), pending=pending)
    show((*plan.warnings, *plan.pending), spec.texts())
    return plan
