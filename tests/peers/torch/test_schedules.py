"""PyTorch: test/optim/test_lrscheduler.py. Learning rates by epoch, from a rate of 0.05.

SequentialLR is a ``join``. A product of schedulers is written as one ``join`` or ``piecewise`` where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi

import pytest

from tests.peers.cases import Case, curve
from tests.peers.curves import constant, join, lines, stairs
from tests.peers.harness import check

TEST = "test_lrscheduler.py::TestLRScheduler"
LR = 0.05


STEP = {"schedule": "step", "from": LR, "factor": 0.1, "every": 3}
MULTI = stairs((0, LR), (2, LR / 10), (5, LR / 100), (9, LR / 1000))
COSINE = {"schedule": "cosine", "from": LR, "to": 1e-10, "over": 10}


def plain() -> Iterator[Case]:
    exponential = {"schedule": "exponential", "from": LR, "rate": 0.9}
    thirds = [LR] * 3 + [0.005] * 3 + [0.0005] * 3 + [0.00005]
    yield curve(f"{TEST}.test_step_lr", STEP, thirds, atol=1e-9)
    tenth = [0.1] * 3 + [0.01] * 3 + [0.001] * 3 + [0.0001]
    yield curve(f"{TEST}.test_get_last_lr_step_lr", {**STEP, "from": 0.1}, tenth, atol=1e-9)
    multi = [LR] * 2 + [0.005] * 3 + [0.0005] * 4 + [0.00005]
    yield curve(f"{TEST}.test_multi_step_lr", MULTI, multi, atol=1e-9)
    yield curve(f"{TEST}.test_constantlr", stairs((0, 0.025), (5, LR)), [0.025] * 5 + [LR] * 5)
    half = [LR * (0.5 + epoch * 0.5 / 4) for epoch in range(4)] + [LR] * 6
    yield curve(f"{TEST}.test_linearlr", lines((0, 0.025), (4, LR)), half)
    quarter = [LR * (0.25 + epoch * 0.35 / 4) for epoch in range(4)] + [LR * 0.6] * 6
    yield curve(f"{TEST}.test_get_last_lr_linearlr", lines((0, LR / 4), (4, LR * 0.6)), quarter)
    yield curve(f"{TEST}.test_exp_lr", exponential, [LR * 0.9**epoch for epoch in range(10)], atol=1e-9)
    power = {"schedule": "polynomial", "from": LR, "over": 5, "power": 0.9}
    yield curve(f"{TEST}.test_poly_lr", power, [LR * (1 - e / 5) ** 0.9 for e in range(5)] + [0.0] * 5, atol=1e-9)
    fall = [1e-10 + (LR - 1e-10) * (1 + cos(pi * epoch / 10)) / 2 for epoch in range(10)]
    yield curve(f"{TEST}.test_cos_anneal_lr", COSINE, fall, atol=1e-9)


def sequences() -> Iterator[Case]:
    low = constant(0.005, 3)
    eighth = {"schedule": "exponential", "from": LR, "rate": 0.8, "for": 3}
    yield curve(
        f"{TEST}.test_sequentiallr1",
        join(eighth, {**STEP, "every": 4}),
        [0.05, 0.04, 0.032] + [LR] * 4 + [LR * 0.1] * 4 + [LR * 0.01] * 4 + [LR * 0.001] * 4,
        atol=1e-9,
    )
    yield curve(
        f"{TEST}.test_sequentiallr2",
        join(low, {"schedule": "exponential", "from": LR, "rate": 0.9}),
        [0.005] * 3 + [LR * 0.9**epoch for epoch in range(10)],
        atol=1e-9,
    )
    yield curve(
        f"{TEST}.test_sequentiallr3",
        join(low, eighth, {**STEP, "every": 2}),
        [0.005] * 3 + [0.05, 0.04, 0.032, 0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005],
        atol=1e-9,
    )
    yield curve(
        f"{TEST}.test_sequentiallr5",
        join({"schedule": "linear", "from": 0.0005, "to": 0.005, "over": 5}, constant(0.025, 5)),
        [0.0005, 0.0014, 0.0023, 0.0032, 0.0041] + [0.025] * 5,
        atol=1e-9,
    )
    yield curve(
        f"{TEST}.test_sequentiallr_does_not_alias_lr_and_initial_lr",
        lines((0, 0.2), (4, 1.6), (8, 0.2)),
        [0.2, 0.55, 0.9, 1.25, 1.6, 1.25, 0.9, 0.55],
    )


def products() -> Iterator[Case]:
    rise = {"schedule": "linear", "from": 0.02, "to": LR, "over": 3}
    yield curve(f"{TEST}.test_chained_lr1", STEP, [LR] * 3 + [0.005] * 3 + [0.0005] * 3 + [0.00005], atol=1e-9)
    yield curve(f"{TEST}.test_chained_lr2", lines((0, 0.02), (3, LR)), [0.02, 0.03, 0.04] + [LR] * 9)
    yield curve(
        f"{TEST}.test_chained_lr3",
        join(rise, stairs((0, LR), (1, LR / 10), (5, LR / 100), (7, LR / 1000))),
        [0.02, 0.03, 0.04, 0.05] + [0.005] * 4 + [0.0005] * 2,
        atol=1e-9,
    )
    power = {"schedule": "polynomial", "from": LR / 10, "over": 5, "power": 0.9}
    yield curve(
        f"{TEST}.test_chained_lr5[constant for all 5]",
        power,
        [LR / 10 * (1 - epoch / 5) ** 0.9 for epoch in range(5)] + [0.0] * 5,
        atol=1e-9,
    )
    both = [LR] * 2 + [0.005] + [5e-4] * 2 + [5e-5] + [5e-6] * 3 + [5e-8]
    at = stairs((0, LR), (2, 0.005), (3, 5e-4), (5, 5e-5), (6, 5e-6), (9, 5e-8))
    yield curve(f"{TEST}.test_compound_step_and_multistep_lr", at, both, atol=1e-12)
    scaled = [LR * 0.9**epoch * 0.1 ** (epoch // 3) for epoch in range(12)]
    parts = [
        {"schedule": "exponential", "from": LR * 0.9**begin * 0.1 ** (begin // 3), "rate": 0.9, "for": 3}
        for begin in (0, 3, 6, 9)
    ]
    yield curve(f"{TEST}.test_compound_step_and_exp_lr", join(*parts), scaled, atol=1e-12)
    parts = [
        {"schedule": "exponential", "from": LR * 0.9**begin * 0.1**number, "rate": 0.9, "for": end - begin}
        for number, (begin, end) in enumerate([(0, 2), (2, 5), (5, 9), (9, 11)])
    ]
    scaled = [LR * 0.9**epoch * 0.1 ** sum(epoch >= mark for mark in (2, 5, 9)) for epoch in range(11)]
    yield curve(f"{TEST}.test_compound_exp_and_multistep_lr", join(*parts), scaled, atol=1e-12)
    at = stairs((0, 0.02), (3, 0.002), (4, 0.005), (6, 0.0005), (9, 0.00005))
    says = [0.02] * 3 + [0.002] + [0.005] * 2 + [0.0005] * 3 + [0.00005] * 3
    yield curve(f"{TEST}.test_compound_step_and_constantlr", at, says, atol=1e-9)


UP_DOWN = [1, 2, 3, 4, 5, 4, 3, 2, 1, 2, 3]
HALVING = [1, 2, 3, 4, 5, 4, 3, 2, 1, 1.5, 2, 2.5, 3, 2.5, 2, 1.5, 1, 1.25, 1.5, 1.75, 2, 1.75]
LONG_DOWN = [1, 2, 3, 4, 5, 13 / 3, 11 / 3, 3, 7 / 3, 5 / 3, 1]


def cycles() -> Iterator[Case]:
    """Yield cyclic rates, and the momentum that moves in the opposite direction."""
    for name, points, says in (
        ("triangular_mode_one_lr", [(0, 1), (4, 5), (8, 1), (12, 5)], UP_DOWN),
        ("triangular_mode", [(0, 2), (4, 6), (8, 2), (12, 6)], [rate + 1 for rate in UP_DOWN]),
        ("triangular2_mode_one_lr", [(0, 1), (4, 5), (8, 1), (12, 3), (16, 1), (20, 2), (24, 1)], HALVING),
        ("triangular_mode_step_size_up_down", [(0, 1), (4, 5), (10, 1)], LONG_DOWN),
    ):
        yield curve(f"{TEST}.test_cycle_lr_{name}[rate]", lines(*points), says)
        total = max(value for _, value in points) + min(value for _, value in points)
        other = [(count, total - value) for count, value in points]
        yield curve(f"{TEST}.test_cycle_lr_{name}[momentum]", lines(*other), [total - rate for rate in says])
    linear = [1, 13, 25, 21.5, 18, 14.5, 11, 7.5, 4, 0.5]
    yield curve(f"{TEST}.test_onecycle_lr_linear_annealing[rate]", lines((0, 1), (2, 25), (9, 0.5)), linear)
    momentum = [22, 11.5, 1, 4, 7, 10, 13, 16, 19, 22]
    yield curve(f"{TEST}.test_onecycle_lr_linear_annealing[momentum]", lines((0, 22), (2, 1), (9, 22)), momentum)
    phases = [1, 9, 17, 25, 17, 9, 1, 0.75, 0.5, 0.25]
    name = f"{TEST}.test_onecycle_lr_linear_annealing_three_phases"
    yield curve(f"{name}[rate]", lines((0, 1), (3, 25), (6, 1), (9, 0.25)), phases)
    phases = [22, 15, 8, 1, 8, 15, 22, 22, 22, 22]
    yield curve(f"{name}[momentum]", lines((0, 22), (3, 1), (6, 22)), phases)
    for name, start, top, end in (("rate", 1, 25, 0.5), ("momentum", 22, 1, 22)):
        both = [
            {"schedule": "cosine", "from": start, "to": top, "over": 2},
            {"schedule": "cosine", "from": top, "to": end, "over": 7},
        ]
        says = [start, (start + top) / 2] + [end + (top - end) / 2 * (1 + cos(pi * n / 7)) for n in range(8)]
        yield curve(f"{TEST}.test_onecycle_lr_cosine_annealing[{name}]", join(*both), says)


def others() -> Iterator[Case]:
    """Yield custom factors, warm restarts, and the schedules of weight averaging."""
    for name in ("test_lambda_lr", "test_multiplicative_lr"):
        for start, rate in ((0.05, 0.9), (0.4, 0.8)):
            fields = {"schedule": "exponential", "from": start, "rate": rate}
            yield curve(f"{TEST}.{name}[{start}]", fields, [start * rate**epoch for epoch in range(10)])
    for times, starts in ((1, range(0, 100, 10)), (2, (0, 10, 30, 70)), (4, (0, 10, 50))):
        ends = [*starts, 10**9][1:]
        lengths = [10 * times**number for number in range(len(ends))]
        says = [
            1e-10 + (LR - 1e-10) * (1 + cos(pi * (epoch - begin) / length)) / 2
            for begin, end, length in zip(starts, ends, lengths, strict=True)
            for epoch in range(begin, min(end, 100))
        ]
        parts = [{**COSINE, "over": length} for length in lengths]
        yield curve(f"{TEST}.test_CosineAnnealingWarmRestarts_lr1[{times}]", join(*parts), says, atol=1e-9)
    yield curve(f"{TEST}.test_swalr_no_anneal", stairs((0, LR), (6, 0.01)), [LR] * 6 + [0.01] * 4)
    before = [LR * 0.9**epoch for epoch in range(6)]
    decay = {"schedule": "exponential", "from": LR, "rate": 0.9, "for": 5}
    for name, kind, length in (("cosine", "cosine", 5), ("linear", "linear", 4)):
        share = [(1 + cos(pi * n / 5)) / 2 if kind == "cosine" else 1 - n / 4 for n in range(1, length)] + [0.0] * 5
        says = before + [before[-1] * each + 0.01 * (1 - each) for each in share][:9]
        anneal = {"schedule": kind, "from": before[-1], "to": 0.01, "over": length}
        yield curve(f"{TEST}.test_swalr_{name}_anneal_after_multiplicative", join(decay, anneal), says, atol=1e-5)


CASES = (*plain(), *sequences(), *products(), *cycles(), *others())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch_schedules(case: Case, backend: str) -> None:
    check(case, CASES, backend)
