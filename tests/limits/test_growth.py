"""Twice as many ops are twice the work, in every shape; what is counted is lines of Python, not time.

What one line does in C, a search in a tuple or a copy of a set, is not seen here: the times of 10,000 and 100,000 ops
in docs/performance.md show it.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable

import pytest

from benchmarks.shapes import SHAPES, Document
from compiler import compile_step
from graphspec import load
from runtime.api import emit
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.codegen.module import emit_module
from runtime.codegen.resources import Extras
from tests.limits.shapes import MORE

DIALECTS = {"torch": TORCH, "tensorflow": TENSORFLOW}
OPS = 105
MOST = 2.2
"""Quadratic parts of a tenth of the work give 2.2 times as much."""


def count(work: Callable[[], object]) -> int:
    """Return how many lines of Python some work runs; each turn of a comprehension is one."""
    counted = 0

    def trace(frame, event, argument):
        nonlocal counted
        counted += event != "return"
        return trace

    gc.collect()  # what an earlier spec left is not counted here
    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(tracing)
    return counted


def count_lines(text: str) -> int:
    """Return how many lines of Python run to load and compile a document."""
    return count(lambda: compile_step(load(text)))


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


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "field", [{"parallel": {"kind": "replicated"}}, {"parallel": {"kind": "sharded"}}, {"micro_batches": 2}]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_ops_where_batches_are_split(shape, field):
    assert compare(lambda ops: {**SHAPES[shape](ops), **field}) < MOST


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", MORE)
def test_the_work_grows_with_what_ops_share(shape):
    assert compare(MORE[shape]) < MOST


def test_each_after_that_has_no_effect_is_found():
    codes = [each.code for each in compile_step(load(json.dumps(MORE["needless afters"](105)))).warnings]
    assert codes == ["W-NO-EFFECT"] * (2 * 34 - 1)


def count_emitted(make, ops: int) -> int:
    """Return how many characters the emitted file of a document has."""
    return len(emit(compile_step(load(json.dumps(make(ops))))))


def count_instrumented(ops: int, backend: str, extras: Extras) -> int:
    """Return how many lines of Python run to emit a file that does more than its step."""
    document, dialect = SHAPES["independent models"](ops), DIALECTS[backend]
    program = compile_step(load(json.dumps(document)), backend=backend).program
    emit_module(program, dialect, extras=extras)  # what is imported or kept once
    return count(lambda: emit_module(program, dialect, extras=extras))


@pytest.mark.parametrize("extras", [Extras(debug=True), Extras(norms=True), Extras(profile=True)], ids=repr)
@pytest.mark.parametrize("backend", DIALECTS)
def test_the_work_of_emitting_instruments_grows_with_the_gradients(backend, extras):
    few, many = (count_instrumented(ops, backend, extras) for ops in (OPS, 2 * OPS))
    assert many / few < MOST


def count_emitting(document: Document, backend: str) -> int:
    """Return how many lines of Python run to emit a document's file."""
    plan = compile_step(load(json.dumps(document)), backend=backend)
    emit(plan)  # what is imported or kept once
    return count(lambda: emit(plan))


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "field",
    [
        {"micro_batches": 2},
        {"parallel": {"kind": "replicated", "bucket_mb": 25}},
        {"precision": {"loss_scale": "dynamic"}},
    ],
)
@pytest.mark.parametrize("backend", DIALECTS)
@pytest.mark.parametrize("shape", {**SHAPES, **MORE})
def test_the_work_of_emitting_grows_with_the_ops(shape, backend, field):
    make = {**SHAPES, **MORE}[shape]
    few, many = (count_emitting({**make(ops), **field}, backend) for ops in (OPS, 2 * OPS))
    assert many / few < MOST


@pytest.mark.parametrize("backend", DIALECTS)
def test_the_work_of_emitting_grows_with_the_forwards_that_run_again(backend):
    def make(ops: int) -> Document:
        made = SHAPES["independent models"](ops)
        for op in made["ops"].values():
            op.update({"checkpoint": True} if "forward" in op else {})
        return made

    few, many = (count_emitting(make(ops), backend) for ops in (OPS, 2 * OPS))
    assert many / few < MOST


@pytest.mark.parametrize("shape", ["heads on a trunk", "one update of many models"])
def test_emitted_text_grows_with_the_models(shape):
    few, some, many = (count_emitted(MORE[shape], ops) for ops in (40, 80, 120))
    assert many - some <= 1.1 * (some - few)


def test_the_work_of_reading_yaml_grows_with_the_ops():
    assert compare(SHAPES["long texts"], "# JSON has no comments\n") < MOST
