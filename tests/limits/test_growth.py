"""Twice as many ops are twice the work, in every shape; what is counted is lines of Python, not time.

What one line does in C, a search in a tuple or a copy of a set, is not seen here: the times of 10,000 and 100,000 ops
in docs/performance.md show it.
"""

from __future__ import annotations

import gc
import json
import sys

import pytest

from benchmarks.shapes import SHAPES, Document
from compiler import compile_step
from graphspec import load

OPS = 105
MOST = 2.2
"""Quadratic parts of a tenth of the work give 2.2 times as much."""


def count_lines(text: str) -> int:
    """Return how many lines of Python run to load and compile a document; each turn of a comprehension is one."""
    counted = 0

    def count(frame, event, argument):
        nonlocal counted
        counted += event != "return"
        return count

    gc.collect()  # what an earlier spec left is not counted here
    tracing = sys.gettrace()
    sys.settrace(count)
    try:
        compile_step(load(text))
    finally:
        sys.settrace(tracing)
    return counted


def compare(make, begin: str = "") -> float:
    """Return how many times as many lines run for twice as many ops."""
    small, large = (begin + json.dumps(make(ops)) for ops in (OPS, 2 * OPS))
    compile_step(load(small))  # what is imported or kept once
    return count_lines(large) / count_lines(small)


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_ops(shape):
    assert compare(SHAPES[shape]) < MOST


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_ops_under_a_loss_scale_and_in_windows(shape):
    """Every write waits for every gradient there, and every update has a function in which it only gathers."""

    def make(ops: int) -> Document:
        made = SHAPES[shape](ops)
        made["precision"] = {"loss_scale": "dynamic"}
        for part in (made, *made.get("blocks", {}).values()):
            for op in part["ops"].values():
                op.update({"accumulate": 4} if "update" in op else {})
        return made

    assert compare(make) < MOST


def make_needless(ops: int) -> Document:
    """Return models that have nothing to do with each other, each called after another is updated."""
    made = SHAPES["independent models"](ops)
    updates = [name for name, op in made["ops"].items() if "update" in op]
    forwards = [op for op in made["ops"].values() if "forward" in op]
    for at, op in enumerate(forwards[1:]):
        op["after"] = [updates[0], updates[at]] if at else [updates[0]]
    return made


def test_the_work_grows_with_each_after_that_has_no_effect():
    assert len(compile_step(load(json.dumps(make_needless(105)))).warnings) == 2 * 34 - 1
    assert compare(make_needless) < MOST


def make_penalized(ops: int) -> Document:
    """Return many updates of a regularized model, which is held where gradients are not finite."""
    made = SHAPES["updates of one model"](ops)
    made["precision"] = {"loss_scale": "dynamic"}
    made["models"]["net"]["regularizer"] = {"l2": 0.01}
    return made


def make_penalized_twice(ops: int) -> Document:
    """Return regularized models that are updated twice; their first updates are held together."""
    made = SHAPES["independent models"](ops // 2)
    made["precision"] = {"loss_scale": "dynamic"}
    for name, op in dict(made["ops"]).items():
        if "update" in op:
            made["models"][op["update"]]["regularizer"] = {"l2": 0.01}
            made["ops"] |= {
                f"{name}_seen": {"forward": op["update"], "inputs": "x", "after": [name]},
                f"{name}_loss": {"loss": "mse", "inputs": [f"{name}_seen", 0.0]},
                f"{name}_again": {"update": op["update"], "loss": f"{name}_loss"},
            }
    return made


@pytest.mark.parametrize("make", [make_penalized, make_penalized_twice])
def test_the_work_grows_with_the_updates_that_may_add_penalties(make):
    assert compare(make) < MOST


def test_the_work_of_reading_yaml_grows_with_the_ops():
    assert compare(SHAPES["long texts"], "# JSON has no comments\n") < MOST
