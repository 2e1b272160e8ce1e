"""Composer: tests/algorithms/test_ema.py and test_gradient_clipping.py. Averages of weights, and adaptive clips."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document, descent
from tests.peers.harness import check

OLD, NEW = np.array([4.0, -2.0]), np.array([1.0, 6.0])
AVERAGED = GIVEN.replace("LOSS_SCALE", "none").replace("lr: 0.5}}", "lr: 1.0}}, slow: {like: w}")


def averages() -> Iterator[Case]:
    """Yield an average that starts at old weights and is updated once with new ones."""
    for name, written, smoothing in (
        ("test_ema[0]", "decay: 0", 0.0),
        ("test_ema[0.5]", "decay: 0.5", 0.5),
        ("test_ema[0.99]", "decay: 0.99", 0.99),
        ("test_ema[1]", "decay: 1", 1.0),
        ("test_ema_algorithm[half_life=10ba]", "half_life: 10ba", np.exp(-np.log(2) / 10)),
        ("test_ema_algorithm[half_life=1ep, every epoch]", "half_life: 1ep, every: 4", 0.5),
        ("test_ema_algorithm[smoothing=0.999]", "decay: 0.999", 0.999),
    ):
        last = 4 if "every" in written else 1
        document = Document(
            text=AVERAGED.replace("\nprecision:", f"\n  average: {{ema: w, into: slow, {written}}}\nprecision:"),
            feeds=[{"g": OLD - NEW}, *[{"g": np.zeros(2)}] * (last - 1)],
            watch="slow.value",
            start={"w.value": OLD, "slow.value": OLD},
            pace=(4, 1, 100),
        )
        says = {last: OLD * smoothing + NEW * (1 - smoothing)}
        yield Case(test=f"test_ema.py::{name}", runs=document, says=says)


def clips() -> Iterator[Case]:
    """Yield clipped gradients, read from one sgd step; Composer's formula has no eps."""
    cube = np.array([[[3.0, 8], [2, 2]], [[1, 3], [3, 9]]])
    slopes = np.array([[[1.0, 1], [3, 5]], [[1, 1], [1, 1]]])
    clipped = np.array([[[0.5, 0.5], [1.5, 2.5]], [[1, 1], [1, 1]]])
    for name, threshold, weights, gradient, expected in (
        ("1D", 0.5, [3.0, 4], [7.0, 24], [0.7, 2.4]),
        ("1D_with_zeros[0 of weights]", 1e-4, [0.0, 0], [1.0, 1], [0.0, 0]),
        ("1D_with_zeros[0 of gradients]", 1e-4, [1.0, 1], [0.0, 0], [0.0, 0]),
        ("1D_with_zeros[0 of both]", 1e-4, [0.0, 0], [0.0, 0], [0.0, 0]),
        ("2D", 0.5, [[3.0, 4], [9, 40]], [[7.0, 24], [5, 12]], [[0.7, 2.4], [5, 12]]),
        ("3D", 1 / 3, cube, slopes, clipped),
        ("4D", 1 / 3, cube[..., None], slopes[..., None], clipped[..., None]),
    ):
        start = np.asarray(weights)
        yield descent(
            f"test_gradient_clipping.py::test_get_clipped_gradients_{name}",
            {"name": "sgd", "lr": 1.0},
            start,
            [gradient],
            {1: start - np.asarray(expected)},
            update={"clip": {"agc": threshold, "eps": 0.0}},
        )


CASES = (*averages(), *clips())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_composer_averages_and_clips(case: Case, backend: str) -> None:
    check(case, CASES, backend)
