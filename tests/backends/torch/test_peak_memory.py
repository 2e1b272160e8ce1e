"""A step holds no more memory at its peak than a loop by hand does: results of functions are released in time."""

from __future__ import annotations

import pytest
import torch

from benchmarks.memory import SHAPES, SIZE, Shape, emitted, expert, find_peak


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_peak_is_that_of_a_loop_by_hand(shape: Shape) -> None:
    batch = {"x": torch.randn(64, SIZE)}
    ours, theirs = emitted(shape), expert(shape)
    for mode in ours:
        assert find_peak(ours[mode], batch) <= 1.02 * find_peak(theirs[mode], batch)
