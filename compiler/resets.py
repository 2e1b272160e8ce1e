"""Resets of metrics: after how many steps one starts anew, where that is not said in steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from compiler.pace import Pace, PaceProblem, Tempo
from compiler.program import Mode
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.ops import MetricOp

Reset: TypeAlias = Literal["epoch", "never", "step"] | int


def find_reset(op: MetricOp, mode: Mode, pace: Pace) -> Reset:
    """Return when the running value of a metric starts anew, or after how many steps of a mode.

    What is counted in epochs, samples or runs is a stretch of the training; in other modes a pass over their data is
    all there is. A stretch that cannot be counted is an epoch; :func:`check_resets` tells of it.
    """
    if isinstance(op.reset, str):
        return op.reset
    if op.reset.unit == "steps":
        return int(op.reset.count)
    try:
        return _count(op, pace) if mode == "train" else "epoch"
    except PaceProblem:
        return "epoch"


def check_resets(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every metric that starts anew after a stretch that cannot be counted."""
    for name, op in spec.ops.items():
        if not isinstance(op, MetricOp) or not op.runs_in("train"):
            continue
        try:
            _count(op, pace)
        except PaceProblem as problem:
            yield Diagnostic(
                code="E-PACE",
                message=f"`reset: {op.reset}` of '{name}' cannot be counted: {problem.message}",
                span=spec.span("ops", name, "reset"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.help,
            )


def _count(op: MetricOp, pace: Pace) -> int:
    """Return the whole steps of a stretch, rounded up; 1 where it is told by a word."""
    return 1 if isinstance(op.reset, str) else math.ceil(Tempo(pace=pace).steps(op.reset))
