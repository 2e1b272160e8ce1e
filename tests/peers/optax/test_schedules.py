"""optax: optax/schedules/_schedule_test.py and _join_test.py. Values by count.

``transition_begin`` is a constant part.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, floor, pi

import pytest

from tests.peers.cases import Case, curve
from tests.peers.curves import join, lines, stairs
from tests.peers.harness import check

FILE = "_schedule_test.py"


def plain() -> Iterator[Case]:
    yield curve(f"{FILE}::ConstantTest.test_constant", {"schedule": "constant", "value": 10}, [10.0] * 15)
    test = f"{FILE}::PolynomialTest"
    linear = {"schedule": "linear", "from": 10.0, "to": 20.0, "over": 10}
    yield curve(f"{test}.test_linear", linear, [*map(float, range(10, 20)), *[20.0] * 5])
    square = {"schedule": "polynomial", "from": 25.0, "to": 10.0, "power": 2, "over": 10}
    says = [10 + 15 * (1 - n / 10) ** 2 for n in range(10)] + [10.0] * 5
    yield curve(f"{test}.test_nonlinear", square, says)
    wait = {"schedule": "constant", "value": 30.0, "for": 4}
    says = [30.0] * 4 + [10 + 20 * (1 - n / 10) ** 2 for n in range(10)] + [10.0] * 6
    yield curve(f"{test}.test_with_decay_begin", join(wait, {**square, "from": 30.0}), says)
    test = f"{FILE}::PiecewiseConstantTest"
    says = [0.1] * 3 + [0.2] * 3 + [0.1] * 4
    yield curve(f"{test}.test_positive", stairs((0, 0.1), (3, 0.2), (6, 0.1)), says)
    yield curve(f"{test}.test_negative", stairs((0, -0.1), (3, -0.2), (6, -0.1)), [-each for each in says])
    ones = [{"schedule": "constant", "value": value, "for": 3} for value in (1.0, 2.0)]
    joined = join(*ones, {"schedule": "constant", "value": 1.0})
    yield curve("_join_test.py::JoinTest.test_join_schedules", joined, [1.0] * 3 + [2.0] * 3 + [1.0])


def exponentials() -> Iterator[Case]:
    test = f"{FILE}::ExponentialTest"
    for staircase in (False, True):
        kind = (
            {"schedule": "step", "factor": 2.0, "every": 2} if staircase else {"schedule": "exponential", "rate": 2.0}
        )
        doubled = {**kind, "from": 1.0, **({} if staircase else {"per": 2})}
        values = [2.0 ** (floor(n / 2) if staircase else n / 2) for n in range(15)]
        for begin in (0, 5):
            wait = {"schedule": "constant", "value": 1.0, "for": begin}
            fields = join(wait, doubled) if begin else doubled
            yield curve(f"{test}.test_exponential[{staircase}, {begin}]", fields, [1.0] * begin + values)
        constant = {**doubled, **({"factor": 1.0, "every": 15} if staircase else {"rate": 1.0, "per": 15})}
        yield curve(f"{test}.test_constant_schedule[{staircase}]", constant, [1.0] * 15)
    halved = {"schedule": "exponential", "from": 32.0, "rate": 0.5}
    yield curve(f"{test}.test_immutable_count", halved, [32.0, 16, 8, 4, 2])


def cosines() -> Iterator[Case]:
    test = f"{FILE}::CosineDecayTest"
    fall = {"schedule": "cosine", "from": 0.1, "over": 10}
    says = [0.1 * (0.5 + 0.5 * cos(pi * n / 10)) for n in range(10)]
    yield curve(f"{test}.test_decay_count_smaller_count", fall, says)
    half = [0.5 + 0.5 * cos(pi * min(1, n / 5)) for n in range(12)]
    yield curve(f"{test}.test_decay_count_greater_count", {**fall, "over": 5}, [0.1 * each for each in half])
    alpha = [0.1 * (0.9 * each + 0.1) for each in half]
    yield curve(f"{test}.test_decay_count_greater_count_with_alpha", {**fall, "over": 5, "to": 0.01}, alpha)
    giant = {"schedule": "cosine", "from": 1000.0, "over": 10**10}
    yield curve(f"{test}.test_with_giant_int_steps", giant, {10**9: 975.52826}, atol=1e-4)
    test = f"{FILE}::WarmupCosineDecayTest"
    for name, start, peak, end in (("with end value", 10.0, 0.5, 1e-4), ("without end value", 5.0, 3.0, 0.0)):
        rise = {"schedule": "warmup", "from": start, "to": peak, "over": 100}
        fields = join(rise, {"schedule": "cosine", "from": peak, "to": end, "over": 900})
        yield curve(f"{test}.test_limits[{name}]", fields, {0: start, 100: peak, 1000: end})
    test = f"{FILE}::SGDRTest"
    for name, rates in (("with step decay", (1.6, 0.8, 0.4)), ("without step_decay", (1.6, 1.6, 1.6))):
        parts = [
            part
            for rate, steps in zip(rates, (2000, 3000, 5000), strict=True)
            for part in (
                {"schedule": "warmup", "to": rate, "over": 500},
                {"schedule": "cosine", "from": rate, "over": steps - 500},
            )
        ]
        says = dict(zip((500, 2500, 5500), rates, strict=True))
        yield curve(f"{test}.test_limits[{name}]", join(*parts), says)


def interpolated() -> Iterator[Case]:
    test = f"{FILE}::PiecewiseInterpolateTest"
    says = [200.0, 220, 240, 260, 280, 300, 255, 210, 165, 120, 75, 75, 75]
    yield curve(f"{test}.test_linear_piecewise", lines((0, 200.0), (5, 300.0), (10, 75.0)), says)
    says = [400.0, 360, 280, 240, 264, 288, 288, 288, 288]
    points = ((0, 400.0), (3, 240.0), (5, 288.0), (7, 288.0))
    yield curve(f"{test}.test_cos_piecewise", lines(*points, kind="cosine"), says)
    yield curve(f"{test}.test_empty_dict", {"schedule": "constant", "value": 13.0}, [13.0] * 5)
    yield curve(f"{test}.test_no_dict", {"schedule": "constant", "value": 17.0}, [17.0] * 3)
    test = f"{FILE}::OneCycleTest"
    says = [100.0, 400, 700, 1000, 775, 550, 325, 100, 67, 34, 1, 1]
    yield curve(f"{test}.test_linear", lines((0, 100.0), (3, 1000.0), (7, 100.0), (10, 1.0)), says)
    points = ((0, 100.0), (2, 1000.0), (5, 1.0))
    yield curve(f"{test}.test_cosine", lines(*points, kind="cosine"), [100.0, 550, 1000, 750.25, 250.75, 1, 1])


CASES = (*plain(), *exponentials(), *cosines(), *interpolated())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optax_schedules(case: Case, backend: str) -> None:
    check(case, CASES, backend)
