"""Keras: keras/src/optimizers/schedules/learning_rate_schedule_test.py. Values of schedules at some steps."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi

import pytest

from tests.peers.cases import Case, Differs, curve
from tests.peers.harness import check
from tests.peers.reasons import BOUNDARY

FILE = "learning_rate_schedule_test.py"


def exponentials() -> Iterator[Case]:
    test = f"{FILE}::ExponentialDecayTest"
    smooth = {"schedule": "exponential", "from": 0.05, "rate": 0.96, "per": 10}
    stairs = {"schedule": "step", "from": 0.1, "factor": 0.96, "every": 3}
    yield curve(f"{test}.test_continuous", smooth, {5: 0.05 * 0.96**0.5})
    yield curve(f"{test}.test_staircase", stairs, {1: 0.1, 2: 0.1, 100: 0.1 * 0.96**33})
    faster = {"schedule": "exponential", "from": 0.05, "rate": 0.9}
    yield curve(f"{FILE}::TestFitLRSchedulesFlow.test_fit_lr_correctness", faster, [0.05 * 0.9**n for n in range(12)])


def piecewise() -> Iterator[Case]:
    """Yield Keras's boundaries: the last count of the old value. Ours are the first of the new one."""
    test = f"{FILE}::PiecewiseConstantDecayTest"
    long = {0: 1.0, 100: 1.0, 105: 0.1, 110: 0.1, 120: 0.01, 999: 0.001}
    at = {"0": 1.0, "101": 0.1, "111": 0.01, "121": 0.001}
    yield curve(f"{test}.test_piecewise_values[one later]", {"schedule": "piecewise", "at": at}, long)
    short = {0: 0.4, 1: 0.4, 2: 0.5, 3: 0.6, 4: 0.7}
    at = {"0": 0.4, "2": 0.5, "3": 0.6, "4": 0.7}
    yield curve(f"{test}.test_boundary_values[one later]", {"schedule": "piecewise", "at": at}, short)
    at = {"0": 0.4, "1": 0.5, "2": 0.6, "3": 0.7}
    differs = Differs(ours={0: 0.4, 1: 0.5, 2: 0.6, 3: 0.7}, why=BOUNDARY, theirs=lambda: 0.6)
    same = {0: 0.4, 1: 0.4, 2: 0.5, 3: 0.6}
    yield curve(f"{test}.test_boundary_values", {"schedule": "piecewise", "at": at}, same, differs=differs)


def polynomials() -> Iterator[Case]:
    for peer, power in (("LinearDecayTest", 1.0), ("SqrtDecayTest", 0.5)):
        test = f"{FILE}::{peer}"
        down = {"schedule": "polynomial", "from": 0.05, "over": 10, "power": power}
        half = 0.049 * 0.5**power + 0.001
        yield curve(f"{test}.test_halfway", down, {5: 0.05 * 0.5**power})
        yield curve(f"{test}.test_end", {**down, "to": 0.001}, {10: 0.001})
        yield curve(f"{test}.test_halfway_with_end", {**down, "to": 0.001}, {5: half})
        yield curve(f"{test}.test_beyond_end", {**down, "to": 0.001}, {15: 0.001})
        again = [{**down, "to": 0.001}, {**down, "from": 0.049 * 0.5**power + 0.001, "to": 0.001}]
        cycle = {"schedule": "join", "parts": again}
        if power == 1:  # a second cycle of 20 steps begins at its middle
            yield curve(f"{test}.test_beyond_end_with_cycle", cycle, {15: 0.049 * 0.25 + 0.001})
    yield curve(
        f"{FILE}::SqrtDecayTest.test_begin_with_cycle",
        {"schedule": "polynomial", "from": 0.001, "to": 0.0001, "over": 10},
        {0: 0.001},
    )


def half_cosine(step: int, over: int, alpha: float = 0.0) -> float:
    """Return what Keras's test expects of a cosine that falls from 1 to alpha."""
    return (1 - alpha) * 0.5 * (1 + cos(pi * min(step, over) / over)) + alpha


def restarted(step: int, times: float = 2.0, factor: float = 1.0, alpha: float = 0.0) -> float:
    """Return what it expects of a cosine that restarts after 1000 steps, longer by ``times``, lower by ``factor``."""
    over, height = 1000, 1.0
    while step >= over:
        step, over, height = step - over, int(over * times), height * factor
    return (1 - alpha) * height * 0.5 * (1 + cos(pi * step / over)) + alpha


COUNTS = range(0, 1500, 250)


def cosines() -> Iterator[Case]:
    test = f"{FILE}::CosineDecayTest"
    fall = {"schedule": "cosine", "from": 1.0, "to": 0.0, "over": 1000}
    yield curve(f"{test}.test_decay", fall, {n: half_cosine(n, 1000) for n in COUNTS})
    yield curve(f"{test}.test_alpha", {**fall, "to": 0.1}, {n: half_cosine(n, 1000, 0.1) for n in COUNTS})
    rise = {"schedule": "warmup", "to": 10.0, "over": 1500}
    yield curve(f"{test}.test_warmup", rise, {n: n / 150 for n in COUNTS})
    both = [{**rise, "over": 2000}, {"schedule": "cosine", "from": 10.0, "over": 1000}]
    says = {n: n / 200 if n <= 2000 else 10 * half_cosine(n - 2000, 1000) for n in range(0, 3000, 250)}
    yield curve(f"{test}.test_warmup_decay", {"schedule": "join", "parts": both}, says)
    test = f"{FILE}::CosineDecayRestartsTest"
    for name, times, factor, alpha in (
        ("test_decay", 2.0, 1.0, 0.0),
        ("test_alpha", 2.0, 1.0, 0.1),
        ("test_mmul", 2.0, 0.9, 0.0),
        ("test_tmul", 1.0, 1.0, 0.0),
    ):
        second = {"schedule": "cosine", "from": factor, "to": alpha, "over": int(1000 * times)}
        parts = [{**fall, "to": alpha}, second]
        says = {n: restarted(n, times, factor, alpha) for n in COUNTS}
        yield curve(f"{test}.{name}", {"schedule": "join", "parts": parts}, says)


CASES = (*exponentials(), *piecewise(), *polynomials(), *cosines())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_keras_schedules(case: Case, backend: str) -> None:
    check(case, CASES, backend)
