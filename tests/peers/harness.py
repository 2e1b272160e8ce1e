"""Runs the cases of a module on a backend, as many as possible in one step, and compares the numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.peers.cases import Case, Curve, Document, Numbers, Piece, Refused

P, R = ParamSpec("P"), TypeVar("R")


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Cache the results of a function, and what it raises: a module that does not compile fails only once."""
    results: dict[Any, R] = {}
    errors: dict[Any, Exception] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if args in errors:
            raise errors[args]
        if args not in results:
            try:
                results[args] = function(*args, **kwargs)
            except Exception as error:
                errors[args] = error
                raise
        return results[args]

    return call


def check(case: Case, cases: tuple[Case, ...], backend: str) -> None:
    """Fail unless a case gives the peer's numbers, or ours where they differ by design."""
    if isinstance(case.runs, Refused):
        with pytest.raises(SpecError, match=re.escape(f"[{case.runs.code}]")):
            make(case.runs.text, backend)
        return
    found = run(case, cases, backend)
    if case.differs is None:
        assert_close(found, case.says, case)
        return
    assert_close(found, case.differs.ours, case)
    last = max(case.says)
    assert not np.allclose(found[last], case.says[last], case.rtol, case.atol), "this no longer differs from the peer"
    if case.differs.theirs is not None:
        np.testing.assert_allclose(case.differs.theirs(), case.says[last], case.rtol, case.atol)


def assert_close(found: Numbers, expected: Numbers, case: Case) -> None:
    """Fail if a value is outside the tolerance of the case."""
    for count, value in expected.items():
        np.testing.assert_allclose(found[count], value, case.rtol, case.atol, err_msg=f"{case.test}, {count}")


def run(case: Case, cases: tuple[Case, ...], backend: str) -> Numbers:
    """Return the watched values of a case, by step or count."""
    match case.runs:
        case Piece() as piece:
            alike = find_settings(piece)
            same = tuple(each for each in cases if isinstance(each.runs, Piece) and find_settings(each.runs) == alike)
            return run_pieces(same, piece.compat, backend)[case]
        case Curve(pace=pace):
            same = tuple(each for each in cases if isinstance(each.runs, Curve) and each.runs.pace == pace)
            return read_curves(same, pace, backend)[case]
        case Document():
            return run_document(case.runs, case.says, backend)
        case Refused():
            raise AssertionError("a refused spec has no values")


def find_settings(piece: Piece) -> tuple[str, ...]:
    """Return what pieces of one step have in common: other windows and verdicts would multiply its functions."""
    updates = [op for op in piece.ops.values() if "update" in op]
    return (str(piece.compat), *(str(op.get(key)) for op in updates for key in ("accumulate", "on_overflow")))


@once
def run_pieces(cases: tuple[Case, ...], compat: str | None, backend: str) -> Mapping[Case, Numbers]:
    """Run independent pieces in one step, which is much cheaper than a step for each."""
    spec: dict[str, Any] = {"graphspec": 1, "name": "pieces", "inputs": {}, "models": {}, "ops": {}, "outputs": []}
    if compat is not None:
        spec["compat"] = compat
    feeds: list[dict[str, Any]] = [{} for _ in range(max(len(piece.feeds) for _, piece in named(cases)))]
    start: dict[str, Any] = {}
    for prefix, piece in named(cases):
        for kind in ("inputs", "models", "ops"):
            spec[kind].update({prefix + name: put(value, prefix) for name, value in getattr(piece, kind).items()})
        spec["outputs"] += [prefix + name for name in find_watched(piece) if name in piece.ops]
        start.update({prefix + name: value for name, value in piece.start.items()})
        for number, feed in enumerate(feeds):  # the last batch again, for pieces with fewer steps
            given = piece.feeds[min(number, len(piece.feeds) - 1)]
            feed.update({prefix + name: value for name, value in given.items()})
    step = make(json.dumps(spec, indent=1), backend)
    set_weights(step, start)
    found: dict[Case, dict[int, Any]] = {case: {} for case in cases}
    for number, feed in enumerate(feeds, start=1):
        outputs, weights = step(feed), read_weights(step)
        for case, (prefix, piece) in zip(cases, named(cases), strict=True):
            names = [prefix + name for name in find_watched(piece)]
            values = [step.numpy(outputs[name]) if name in outputs else weights[name] for name in names]
            found[case][number] = values[0] if isinstance(piece.watch, str) else np.concatenate(values, axis=None)
    return found


def find_watched(piece: Piece) -> tuple[str, ...]:
    """Return the names of what a piece watches."""
    return (piece.watch,) if isinstance(piece.watch, str) else piece.watch


def named(cases: Sequence[Case]) -> Iterator[tuple[str, Piece]]:
    """Yield pieces with the prefix of their names in the common spec."""
    for number, case in enumerate(cases):
        assert isinstance(case.runs, Piece)
        yield f"{re.sub(r'[^a-zA-Z]+', '_', case.test)}_{number}_", case.runs


def put(value: Any, prefix: str) -> Any:
    """Return a part of a spec with ``~`` replaced by a prefix."""
    match value:
        case str():
            return prefix + value[1:] if value.startswith("~") else value
        case Mapping():
            return {key: put(each, prefix) for key, each in value.items()}
        case list() | tuple():
            return [put(each, prefix) for each in value]
        case _:
            return value


@once
def read_curves(cases: tuple[Case, ...], pace: tuple[int, int, int], backend: str) -> Mapping[Case, Numbers]:
    """Evaluate all schedules of a module at all counts, by restoring a state with that count of steps."""
    names = {case: f"curve_{number}" for number, case in enumerate(cases)}
    ops = {name: {**case.runs.fields, "clock": "steps"} for case, name in names.items() if isinstance(case.runs, Curve)}
    spec = {"graphspec": 1, "name": "curves", "ops": ops, "outputs": list(ops)}
    step = make(json.dumps(spec, indent=1), backend, pace)
    found: dict[Case, dict[int, Any]] = {case: {} for case in cases}
    for count in sorted({count for case in cases for count in case.says}):
        state = step.state()
        step.restore(replace(state, counters={**state.counters, "steps": {"train": count, "eval": 0}}))
        outputs = step({}, mode="eval")  # an evaluation reads what the next train step reads
        for case, name in names.items():
            found[case][count] = step.numpy(outputs[name])
    return found


def run_document(document: Document, says: Numbers, backend: str) -> Numbers:
    """Run a whole spec, and return the watched values of the steps that the case has numbers for."""
    step = make(document.text, backend, document.pace, document.dtype)
    set_weights(step, document.start)
    found: dict[int, Any] = {}
    for number, feed in enumerate(document.feeds, start=1):
        outputs = step(feed)
        if number not in says:
            continue
        if document.watch == "scale":
            found[number] = step.report.scale_after
        elif document.watch in outputs:
            found[number] = step.numpy(outputs[document.watch])
        else:
            found[number] = read_weights(step)[document.watch]
    return found


def make(text: str, backend: str, pace: tuple[int, int, int] = (1, 1, 1), dtype: str = "float64") -> Step:
    """Load, compile and build a spec."""
    epoch, batch, length = pace
    plan = compile_step(load(text), backend, pace=Pace(epoch=epoch, batch=batch, run=length))
    return build(plan, device="cpu", dtype=dtype, allow=("tests",))


def read_weights(step: Step) -> Mapping[str, np.ndarray]:
    """Return parameters and buffers as ``model.name``."""
    arrays = step.state().arrays
    return {name.removeprefix("models."): array for name, array in arrays.items() if name.startswith("models.")}


def set_weights(step: Step, values: Mapping[str, Any]) -> None:
    """Set parameters, named ``model.name``, to the initial values of a test."""
    if not values:
        return
    state = step.state()
    given = {f"models.{name}": np.asarray(value) for name, value in values.items()}
    assert given.keys() <= state.arrays.keys(), given.keys() - state.arrays.keys()
    cast = {name: array.astype(state.arrays[name].dtype) for name, array in given.items()}
    step.restore(replace(state, arrays={**state.arrays, **cast}))
