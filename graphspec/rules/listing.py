"""Rules on lists of names: nothing stands in one twice."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.diagnostics import Diagnostic
from graphspec.ops import GradientOp, Op, UpdateOp
from graphspec.scope import Scope
from graphspec.source import Path


def check_repeats(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a name that stands twice in a list where each counts once."""
    yield from _check(scope, "`outputs`", ("outputs",), scope.spec.outputs or ())
    for name, op in scope.sound_ops():
        for field, names in _find_lists(name, op):
            yield from _check(scope, f"`{field}` of op '{name}'", ("ops", name, field), names)


def _find_lists(name: str, op: Op) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "after", op.after or ()
    match op:
        case UpdateOp():
            yield "update", op.update
            yield "gradients", op.gradients or ()
        case GradientOp():
            yield "wrt", op.wrt
        case _:
            pass


def _check(scope: Scope, field: str, path: Path, names: tuple[str, ...]) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield scope.report("GS109", f"{field} lists '{name}' twice", (*path, index), help="write it once")
        seen.add(name)
