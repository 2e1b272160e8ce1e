"""Rules on when ops run: first and last steps, and modes in which what an op reads is not computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphspec.diagnostics import Diagnostic
from graphspec.durations import Duration
from graphspec.modes import Reach, find_reaches, is_bound
from graphspec.ops import MODES, ModeName, Op
from graphspec.scope import Scope


def check_windows(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse an op whose end comes before its start; moments in different units are left to the compiler."""
    for name, op in scope.sound_ops():
        if op.start is not None and op.until is not None and _ends_first(op.start, op.until):
            message = f"op '{name}' never runs: it starts at {_spell(op.start)} and ends with {_spell(op.until)}"
            help = "both count from 1, and `until` is the last step it runs in"
            yield scope.report("GS120", message, ("ops", name, "until"), help=help)


def _ends_first(start: Duration, until: Duration) -> bool:
    """Return whether an end comes before a start of the same unit, whatever the run is like.

    An epoch is a stretch: one that ends with epoch 2 may start in it. A share is a point between two steps.
    """
    if start.unit != until.unit:
        return False
    match start.unit:
        case "epochs":
            return start.count >= until.count + 1
        case "run":
            return start.count >= until.count
        case "steps" | "updates" | "samples":
            return start.count > until.count


def _spell(moment: Duration) -> str:
    """Return a moment in words: `step 100`, and other units as they are written."""
    return f"step {moment.count:g}" if moment.unit == "steps" else str(moment)


def check_modes(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse an op that runs in a mode in which a value it reads is not computed."""
    reaches = find_reaches(scope.spec.ops)
    owners = {value: name for name, op in scope.spec.ops.items() for value in op.defines(name)}
    for name, op in scope.sound_ops():
        if is_bound(op):
            yield from _check_bound(scope, name, op, owners, reaches)
        elif not reaches[name].modes:
            yield from _check_free(scope, name, op, owners, reaches)


def _check_bound(
    scope: Scope, name: str, op: Op, owners: Mapping[str, str], reaches: Mapping[str, Reach]
) -> Iterator[Diagnostic]:
    """Compare the modes that an op says with those of the ops it reads."""
    for reference in op.operands():
        source = owners.get(reference.name)
        if source is None:
            continue
        blockers = reaches[source].blockers
        missing: list[ModeName] = [mode for mode in MODES if op.runs_in(mode) and mode in blockers]
        if missing and (reaches[source].modes or is_bound(scope.spec.ops[source])):
            message = f"op '{name}' runs in {_join(missing)} mode, where '{reference.name}' is not computed"
            help = f"change `mode` of op '{blockers[missing[0]]}' or of this op"
            note = _explain(scope, source, blockers[missing[0]])
            yield scope.report("GS119", message, ("ops", name, *reference.path), notes=(note,), help=help)


def _check_free(
    scope: Scope, name: str, op: Op, owners: Mapping[str, str], reaches: Mapping[str, Reach]
) -> Iterator[Diagnostic]:
    """Report an op that reads values which are never computed in one mode, where it is the first to do so."""
    sources = [owners[reference.name] for reference in op.operands() if reference.name in owners]
    if all(reaches[source].modes for source in sources):
        blockers = sorted(set(reaches[name].blockers.values()), key=list(scope.spec.ops).index)
        notes = tuple(_say_modes(scope, blocker) for blocker in blockers)
        message = f"op '{name}' runs in no mode: the values it reads are never computed together"
        yield scope.report("GS119", message, ("ops", name), key=True, notes=notes, help="change one of these modes")


def _explain(scope: Scope, source: str, blocker: str) -> str:
    said = _say_modes(scope, blocker)
    return said if source == blocker else f"'{source}' needs '{blocker}', and {said}"


def _say_modes(scope: Scope, name: str) -> str:
    op = scope.spec.ops[name]
    return f"op '{name}' runs in {_join(mode for mode in MODES if op.runs_in(mode)) or 'no'} mode only"


def _join(modes: Iterable[str]) -> str:
    return " and ".join(modes)
