"""Rules on the run: what it evaluates, and the figures by which it keeps its best and stops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.diagnostics import Diagnostic
from graphspec.evaluation import find_goal, find_returned, find_role, find_watched_mode
from graphspec.modes import find_reaches
from graphspec.ops import ModeName
from graphspec.run import BestSpec, StopSpec
from graphspec.scope import Scope
from graphspec.source import Path
from graphspec.suggestions import closest
from graphspec.wording import enumerate_names


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
            # An evaluation that returns nothing at all is told once, where it is asked for.
            if returned or run.eval is None:
                yield _miss_metric(scope, field, watch.metric, mode, returned)
        elif find_goal(scope.spec, watch) is None:
            message = f"`run.{field}` does not say whether less or more of '{watch.metric}' is better"
            path: Path = ("run", field, "metric")
            yield scope.report("GS125", message, path, help="add `mode: min` or `mode: max` beside it")


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
        help=_mend(scope, name, mode),
    )


def _mend(scope: Scope, name: str, mode: ModeName) -> str:
    """Tell how a figure comes to be returned, or that another is to be named."""
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
