"""Composer: tests/optim/test_scheduler.py, test_scheduler_init. Factors of the rate in 1000 epochs of 1000 batches.

Durations are written in Composer's units ``ba``, ``ep`` and ``dur``. A scale schedule ratio, the number at the end of a
name, is already multiplied into them. Counts are batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.peers.cases import Case, curve
from tests.peers.curves import constant, join, stairs
from tests.peers.harness import check

TEST = "test_scheduler.py::test_scheduler_init"


def linear(start: float, end: float, over: str, kind: str = "linear") -> dict[str, Any]:
    """Return a line or half a cosine between two values."""
    return {"schedule": kind, "from": start, "to": end, "over": over}


def power(end: float, over: str) -> dict[str, Any]:
    """Return a parabola that falls from 1."""
    return {"schedule": "polynomial", "from": 1.0, "to": end, "over": over, "power": 2.0}


def rise(over: str, to: float = 1.0) -> dict[str, Any]:
    """Return a warmup."""
    return {"schedule": "warmup", "to": to, "over": over}


def init(name: str, fields: Mapping[str, Any], says: Mapping[int, float], ratio: float = 1.0) -> Case:
    """Return a case of a run of 1000 epochs times a ratio."""
    return curve(f"{TEST}[{name}]", fields, says, pace=(1000, 1, int(1_000_000 * ratio)), atol=1e-3)


def steps() -> Iterator[Case]:
    step = {"schedule": "step", "from": 1.0, "factor": 0.1}
    yield init("Step 10ba", {**step, "every": "10ba"}, {5: 1.0, 15: 0.1, 35: 0.001})
    says = {1000: 1.0, 3000: 0.8, 7000: 0.512}
    yield init("Step 0.002dur", {**step, "every": "0.002dur", "factor": 0.8}, says)
    yield init("Step 1ep", {**step, "every": "1ep", "factor": 0.5}, {500: 1.0, 1500: 0.5, 3500: 0.125})
    yield init("Step 10ba, 0.5", {**step, "every": "5ba", "factor": 0.5}, {3: 1.0, 8: 0.5, 18: 0.125}, 0.5)
    says = {5: 1.0, 20: 0.1, 50: 0.01, 100: 0.001}
    yield init("MultiStep ba", stairs((0, 1.0), ("10ba", 0.1), ("30ba", 0.01), ("70ba", 0.001)), says)
    says = {50: 1.0, 500: 0.5, 5000: 0.25, 50000: 0.125}
    yield init("MultiStep mixed", stairs((0, 1.0), ("100ba", 0.5), ("1ep", 0.25), ("0.01dur", 0.125)), says)
    says = {200: 1.0, 2000: 0.5, 20000: 0.25, 200000: 0.125}
    yield init("MultiStep mixed, 4", stairs((0, 1.0), ("400ba", 0.5), ("4ep", 0.25), ("0.01dur", 0.125)), says, 4.0)
    exponential = {"schedule": "exponential", "from": 1.0, "rate": 0.5}
    yield init("Exponential", {**exponential, "per": "1ep"}, {1000: 0.5, 2000: 0.25, 4000: 0.0625})
    yield init("Exponential, 2", {**exponential, "per": "2ep"}, {2000: 0.5, 4000: 0.25, 8000: 0.0625}, 2.0)


def falls() -> Iterator[Case]:
    hundreds = (100_000, 200_000, 400_000)
    yield init("Linear", linear(1, 0, "1dur"), dict(zip(hundreds, (0.9, 0.8, 0.6), strict=True)))
    yield init("Linear 0 to 2", linear(0, 2, "1dur"), dict(zip(hundreds, (0.2, 0.4, 0.8), strict=True)))
    yield init("Linear 0.25dur", linear(0, 1, "0.25dur"), dict(zip(hundreds, (0.4, 0.8, 1.0), strict=True)))
    yield init("Linear 0.25dur, 2", linear(0, 1, "0.25dur"), dict(zip(hundreds, (0.2, 0.4, 0.8), strict=True)), 2.0)
    says = {0: 1.0, 333333: 0.75, 500000: 0.5, 666667: 0.25, 1000000: 0.0}
    yield init("Cosine", linear(1, 0, "1dur", "cosine"), says)
    says = {0: 1.0, 10: 0.875, 15: 0.75, 20: 0.625, 30: 0.5, 50: 0.5}
    yield init("Cosine 30ba", linear(1, 0.5, "30ba", "cosine"), says)
    says = {0: 1.0, 2: 0.875, 3: 0.75, 4: 0.625, 6: 0.5, 10: 0.5}
    yield init("Cosine 30ba, 0.2", linear(1, 0.5, "6ba", "cosine"), says, 0.2)
    again = linear(1, 0, "30ba", "cosine")
    yield init("WarmRestarts", join(again, again), {0: 1.0, 10: 0.75, 15: 0.5, 20: 0.25, 30: 1.0, 40: 0.75})
    parts = [linear(1, 0, over, "cosine") for over in ("3000ba", "4500ba", "6750ba", "10125ba")]
    says = {0: 1.0, 1000: 0.75, 3000: 1.0, 4500: 0.75, 7500: 1.0, 14250: 1.0}
    yield init("WarmRestarts 0.003dur", join(*parts), says)
    parts = [linear(1, 0.5, over, "cosine") for over in ("15ep", "30ep")]
    yield init("WarmRestarts 30ep, 0.5", join(*parts), {0: 1.0, 5000: 0.875, 15000: 1.0, 25000: 0.875}, 0.5)
    yield init("Polynomial", power(0.0, "1dur"), {0: 1.0, 100000: 0.81, 200000: 0.64, 500000: 0.25})
    yield init("Polynomial 100ba", power(0.5, "100ba"), {0: 1.0, 10: 0.905, 20: 0.82, 50: 0.625})
    yield init("Polynomial 100ba, 0.5", power(0.5, "50ba"), {0: 1.0, 10: 0.82, 20: 0.68, 50: 0.5}, 0.5)


def warmups() -> Iterator[Case]:
    whole = {0: 0.0, 100_000: 0.1, 1_000_000: 1.0}
    for name in ("MultiStep", "Constant", "Linear", "Cosine", "Polynomial"):
        yield init(f"{name}WithWarmup 1000ep", rise("1000ep"), whole)
    after = stairs((0, 1.0), ("10ba", 0.1), ("30ba", 0.01))
    says = {0: 0.0, 5: 0.5, 15: 1.0, 25: 0.1, 45: 0.01}
    yield init("MultiStepWithWarmup ba", join(rise("10ba"), after), says)
    after = stairs((0, 1.0), ("990ba", 0.5), ("1990ba", 0.25))
    says = {0: 0.0, 5: 0.5, 15: 1.0, 1500: 0.5, 2500: 0.25}
    yield init("MultiStepWithWarmup ep, 0.5", join(rise("10ba"), after), says, 0.5)
    after = stairs((0, 1.0), ("995ba", 0.5), ("1995ba", 0.25))
    says = {0: 0.0, 5: 1.0, 15: 1.0, 1500: 0.5, 2500: 0.25}
    yield init("MultiStepWithWarmup ep, scaled, 0.5", join(rise("5ba"), after), says, 0.5)
    says = {0: 0.0, 250000: 0.5, 500000: 1.0, 750000: 1.0, 1000000: 1.0}
    yield init("ConstantWithWarmup 500ep", join(rise("500ep"), constant(1.0, "1dur")), says)
    thrice = {0: 0.0, 250000: 1.5, 500000: 3.0, 500500: 3.0, 501000: 3.0, 502000: 3.0}
    yield init("ConstantWithWarmup alpha", join(rise("500ep", 3.0), constant(3.0, "1dur")), thrice)
    yield init("ConstantWithWarmup alpha, 0.5", join(rise("500ep", 3.0), constant(3.0, "1dur")), thrice, 0.5)
    says = {0: 0.0, 250: 0.5, 500: 1.0, 499750: 1.0}
    yield init("ConstantWithWarmup 0.0005dur", rise("0.0005dur"), says)
    says = {0: 0.0, 250000: 0.5, 500000: 1.0, 750000: 0.5, 1000000: 0.0}
    yield init("LinearWithWarmup 500ep", join(rise("500ep"), linear(1, 0, "500ep")), says)
    says = {0: 0.0, 250000: 1.5, 500000: 3.0, 500500: 2.5, 501000: 2.0, 502000: 2.0}
    yield init("LinearWithWarmup 3 to 2, 0.5", join(rise("500ep", 3.0), linear(3, 2, "1ep")), says, 0.5)
    says = {0: 0.0, 250: 0.5, 500: 1.0, 499750: 0.5}
    yield init("LinearWithWarmup 0.0005dur", join(rise("0.0005dur"), linear(1, 0, "0.9995dur")), says)
    says = {0: 0.0, 250: 0.5, 500: 1.0, 249875: 0.5}
    yield init("LinearWithWarmup 500ba, 0.5", join(rise("500ba"), linear(1, 0, "499500ba")), says, 0.5)
    says = {0: 0.0, 125: 0.5, 250: 1.0, 249875: 0.5}
    yield init("LinearWithWarmup 500ba, scaled, 0.5", join(rise("250ba"), linear(1, 0, "499750ba")), says, 0.5)
    for name, fall, batches, shorter in (
        ("Cosine", lambda end: linear(1, end, "0.1dur", "cosine"), (933333, 950000), (9333, 9500)),
        ("Polynomial", lambda end: power(end, "0.1dur"), (913397, 929289), (9134, 9293)),
    ):
        says = {0: 0.0, 450000: 0.5, 900000: 1.0, batches[0]: 0.75, batches[1]: 0.5, 1000000: 0.0}
        yield init(f"{name}WithWarmup 0.9dur", join(rise("0.9dur"), fall(0.0)), says)
        says = {0: 0.0, 4500: 0.5, 9000: 1.0, shorter[0]: 0.875, shorter[1]: 0.75, 10000: 0.5}
        yield init(f"{name}WithWarmup 0.9dur, 0.01", join(rise("0.9dur"), fall(0.5)), says, 0.01)


CASES = (*steps(), *falls(), *warmups())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_composer_schedules(case: Case, backend: str) -> None:
    check(case, CASES, backend)
