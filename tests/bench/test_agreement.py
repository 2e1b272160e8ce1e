"""How far the outputs of two steps are apart, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.bench.agreement import compare, measure


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),  # of the largest number: 0.5 / 2
        ([1.25, 4.0], [1.0, 4.0], 0.0625),  # 0.25 / 4
        ([0.0, 3.0], [0.0, 0.0], 1.0),  # of the other's largest, where all are zero
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.5], [np.inf, 1.0], 0.5),
        ([np.nan, 1.0], [2.0, 1.0], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_a_difference_is_relative_to_the_largest_number(found, expected, difference):
    assert measure(np.array(found), np.array(expected)) == pytest.approx(difference)


def test_the_largest_difference_is_named_with_its_output_and_step():
    ours = [{"a": np.float32(1), "b": np.float32(2)}, {"a": np.float32(1), "b": np.float32(3), "own": np.float32(9)}]
    theirs = [{"a": np.float32(1), "b": np.float32(2)}, {"a": np.float32(1), "b": np.float32(2)}]
    found = compare(ours, theirs)
    assert (found.difference, found.output, found.step, found.agrees) == (0.5, "b", 2, False)
    assert str(found) == "differs by 0.5"
    assert str(compare(theirs, theirs)) == "equal"
    assert str(compare([{}, {}], theirs)) == "not compared"
    near = [{"a": np.float32(1.000001)}, {}]
    assert str(compare(near, theirs)).startswith("equal to 9.5e-07")
