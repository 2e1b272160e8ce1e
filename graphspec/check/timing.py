"""Rules on when ops run: first and last steps, and modes in which what an op reads is not computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphspec.analysis.evaluation import find_goal, find_returned, find_role, find_watched_mode
from graphspec.analysis.modes import Reach, find_reaches, is_bound
from graphspec.analysis.scope import Scope
from graphspec.declare.durations import Duration
from graphspec.declare.ops import MODES, ModeName, Op
from graphspec.declare.run import BestSpec, StopSpec
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.suggestions import closest
from graphspec.words import enumerate_names


def check_windows(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse an op whose end comes before its start; moments in different units are left to the compiler."""
    for name, op in scope.sound_ops():
        if op.start is not None and op.until is not None and _ends_first(op.start, op.until):
            message = f"op '{name}' never runs: it starts at {_spell(op.start)} and ends with {_spell(op.until)}"
            help = "both count from 1, and `until` is the last step it runs in"
            yield scope.report("GS120", message, ("ops", name, "until"), help=help)


def _ends_first(start: Duration, until: Duration) -> bool:
    """Return whether an end comes before a start of the same unit, for a run of any length.

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


def check_evaluation(scope: Scope) -> Iterator[Diagnostic]:
    """Check that an evaluation has samples, and something to return."""
    spec = scope.spec
    if spec.run.eval is None or scope.blind:
        return
    role, is_written = find_role(spec), spec.run.eval.data is not None
    if role not in spec.data and role not in scope.broken:
        yield _miss_data(scope, role, ("run", "eval", "data") if is_written else ("run", "eval"))
    mode = spec.run.eval.mode
    if not find_returned(spec, mode) and not scope.broken:
        message = f"`run.eval` evaluates in {mode} mode, in which the step returns nothing"
        help = "add a `metric` op, or name the values to evaluate in `outputs`"
        yield scope.report("GS126", message, ("run", "eval"), key=True, help=help)


def check_watched(scope: Scope) -> Iterator[Diagnostic]:
    """Check that `best` and `stop` go by a figure that is returned, and of which less or more is better."""
    run = scope.spec.run
    watches: Mapping[str, BestSpec | StopSpec | None] = {"best": run.best, "stop": run.stop}
    mode = find_watched_mode(scope.spec)
    returned = find_returned(scope.spec, mode)
    for field, watch in watches.items():
        if watch is None or scope.blind or watch.metric in scope.broken:
            continue
        if watch.metric not in returned:
            # An evaluation that returns nothing at all is reported once, where it is requested.
            if returned or run.eval is None:
                yield _miss_metric(scope, field, watch.metric, mode, returned)
        elif find_goal(scope.spec, watch) is None:
            message = f"`run.{field}` does not say whether less or more of '{watch.metric}' is better"
            path: Path = ("run", field, "metric")
            yield scope.report("GS125", message, path, help="also write `mode: min` or `mode: max`")


def _miss_data(scope: Scope, role: str, path: Path) -> Diagnostic:
    near = closest(role, scope.spec.data, 1)
    known = f"; it has {enumerate_names(scope.spec.data)}" if scope.spec.data else ""
    return scope.report(
        "GS124",
        f"`run.eval` evaluates on '{role}', a set that `data` does not have{known}",
        path,
        key=path[-1] == "eval",
        label=f"did you mean '{near[0]}'?" if near else "",
        help=f"declare it under `data`, as in `{role}: {{source: ...}}`, or name another: `eval: {{data: ...}}`",
    )


def _miss_metric(scope: Scope, field: str, name: str, mode: ModeName, returned: tuple[str, ...]) -> Diagnostic:
    near = closest(name, returned, 1)
    found = f"it returns {enumerate_names(returned)}" if returned else "it returns nothing"
    message = f"`run.{field}` goes by '{name}', which the step does not return in {mode} mode; {found}"
    return scope.report(
        "GS123",
        message,
        ("run", field, "metric"),
        label=f"did you mean '{near[0]}'?" if near else "",
        help=_suggest_figure(scope, name, mode),
    )


def _suggest_figure(scope: Scope, name: str, mode: ModeName) -> str:
    """Return how to make the step return a figure, or to name another."""
    if scope.spec.run.eval is None and name in find_returned(scope.spec, "eval"):
        return "it is returned in eval mode: add `eval: {every: 1 epochs}` to `run`"
    entry = scope.find(name)
    if entry is None or "value" not in entry.facets or entry.op is None:
        return "write the name of an output of one number"
    if mode not in find_reaches(scope.spec.ops)[entry.op].modes:
        return f"'{name}' is not computed in {mode} mode: name another figure, or change the `mode` of '{entry.op}'"
    if scope.spec.outputs is not None:
        return f"add '{name}' to `outputs`, if it is one number"
    shown = find_returned(scope.spec, mode)
    return f"write `outputs: [{', '.join((*shown, name))}]`, if it is one number"
