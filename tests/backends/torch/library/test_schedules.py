"""Schedules give the learning rates of torch's own schedulers, where those exist for the same mathematics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.optim import lr_scheduler as torch_schedulers
from torch.optim.lr_scheduler import LRScheduler

from runtime.backends.torch.library.schedules import (
    constant,
    cosine,
    exponential,
    joined,
    linear,
    paced,
    piecewise,
    polynomial,
    step_decay,
    warmup,
)
from runtime.support.clocks import Clock

Curve = Callable[[int], float]
Make = Callable[[torch.optim.Optimizer], LRScheduler]
LR = 0.1


def torch_rates(make: Make, steps: int) -> list[float]:
    """Return the rates that torch's scheduler gives an optimizer, from its first step on."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        with warnings.catch_warnings():  # SequentialLR calls the others in a way that torch itself deprecates
            warnings.simplefilter("ignore", UserWarning)
            scheduler.step()
    return rates


def warm_then_cosine(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Return torch's warmup of 10 steps from a tenth, followed by a cosine of 40."""
    first = torch_schedulers.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    second = torch_schedulers.CosineAnnealingLR(optimizer, T_max=40, eta_min=1e-3)
    return torch_schedulers.SequentialLR(optimizer, [first, second], milestones=[10])


CASES: dict[str, tuple[Curve, Make, int]] = {
    "constant": (constant(LR), lambda o: torch_schedulers.ConstantLR(o, factor=1.0), 5),
    "cosine": (cosine(LR, 1e-3, 30), lambda o: torch_schedulers.CosineAnnealingLR(o, T_max=30, eta_min=1e-3), 31),
    "linear": (linear(LR, LR / 4, 20), lambda o: torch_schedulers.LinearLR(o, 1.0, 0.25, 20), 30),
    "warmup": (warmup(LR / 10, LR, 20), lambda o: torch_schedulers.LinearLR(o, 0.1, 1.0, 20), 30),
    "polynomial": (polynomial(LR, 0.0, 20, 3.0), lambda o: torch_schedulers.PolynomialLR(o, 20, 3.0), 30),
    "exponential": (exponential(LR, 0.9, 1), lambda o: torch_schedulers.ExponentialLR(o, 0.9), 30),
    "step": (step_decay(LR, 0.5, 7), lambda o: torch_schedulers.StepLR(o, 7, 0.5), 30),
    "piecewise": (
        piecewise(at={0: LR, 5: LR / 2, 12: LR / 4}),
        lambda o: torch_schedulers.MultiStepLR(o, [5, 12], 0.5),
        20,
    ),
    "join": (joined(parts=[warmup(LR / 10, LR, 10), cosine(LR, 1e-3, 40)], at=[10]), warm_then_cosine, 50),
}


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_gives_the_rates_of_torchs_scheduler(name: str) -> None:
    curve, make, steps = CASES[name]
    assert [curve(n) for n in range(steps)] == pytest.approx(torch_rates(make, steps), rel=1e-9)


def test_every_part_of_a_join_starts_its_own_count_at_zero() -> None:
    curve = joined(parts=[linear(1.0, 0.0, 4), step_decay(8.0, 0.5, 2), linear(1.0, 0.0, 4)], at=[3, 7])
    assert [curve(n) for n in range(10)] == [1.0, 0.75, 0.5, 8.0, 8.0, 4.0, 4.0, 1.0, 0.75, 0.5]


def test_a_schedule_over_a_share_of_a_tick_reaches_its_end_at_the_next() -> None:
    curve = linear(1.0, 0.0, 2.5)
    assert [curve(n) for n in range(4)] == pytest.approx([1.0, 0.6, 0.2, 0.0])


@pytest.mark.parametrize(
    ("pace", "read"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"times": 64}, [0, 64, 128, 192, 256, 320, 384]),
        ({"every": 3}, [0, 0, 0, 1, 1, 1, 2]),
    ],
)
def test_a_paced_schedule_reads_the_finished_train_steps(pace: dict[str, int], read: list[int]) -> None:
    clock = Clock()
    curve = paced(clock, lambda n: n, **pace)
    found = []
    for _ in range(7):
        clock.start("train")
        found.append(curve(99))
        clock.finish()
    assert found == read


def test_steps_of_other_modes_do_not_move_a_paced_schedule() -> None:
    clock = Clock()
    for mode in ("train", "eval", "eval"):
        clock.start(mode)
        clock.finish()
    assert paced(clock, lambda n: n)(0) == 1


def test_half_a_cosine_is_half_way_down_in_its_middle() -> None:
    assert cosine(3.0, 1.0, 10)(5) == pytest.approx(2.0)
    assert cosine(3.0, 1.0, 4)(1) == pytest.approx(1.0 + (1.0 + math.sqrt(0.5)))
