"""Twice as many ops are twice the work, in every shape; what is counted are lines of Python, not time."""

from __future__ import annotations

import gc
import json
import sys

import pytest

from benchmarks.shapes import SHAPES
from compiler import compile_step
from graphspec import load

OPS = 63
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


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "yaml"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_ops(shape, as_json):
    small, large = (json.dumps(SHAPES[shape](ops)) for ops in (OPS, 2 * OPS))
    if not as_json:  # a comment: JSON has none
        small, large = f"# a shape\n{small}", f"# a shape\n{large}"
    count_lines(small)  # what is imported or kept once
    assert count_lines(large) < MOST * count_lines(small)
