"""What must not change the numbers of a run: another legal order of its updates, and being done once more."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from compiler import compile_step
from compiler.timing.units import Pace
from graphspec.loading import load
from runtime import build
from tests.resilience.trials import SPECS

pytestmark = pytest.mark.needs("torch")

STEPS = 12
WHOLE = {name: (SPECS / f"{name}.yaml").read_text() for name in ("td3", "gan")}
TEXTS = {
    **WHOLE,
    "td3 at once": WHOLE["td3"].replace(", after: step_1", ""),
    "gan at once": WHOLE["gan"].replace(", after: step_d", ""),
}
"""Without `after`, updates read what is there when the step begins, and more orders of them are legal."""


def batch(name, step):
    drawn = np.random.default_rng(step)
    if name.startswith("gan"):
        return {"image": drawn.uniform(-1, 1, size=(16, 1, 8, 8))}
    sizes = {"state": 3, "action": 1, "reward": 1, "next_state": 3, "going": 1}
    return {key: drawn.normal(size=(16, size)) for key, size in sizes.items()}


@cache
def plan(name, order):
    return compile_step(load(TEXTS[name]), order=order, pace=Pace(batch=16, run=STEPS))


@cache
def train(name, order, again=0):
    """Return everything that some steps change, in float64."""
    step = build(plan(name, order), device="cpu", seed=3, dtype="float64")
    for number in range(STEPS):
        step(batch(name, number))
    return step.state()


def is_same(one, other):
    assert one.arrays.keys() == other.arrays.keys()
    arrays = [key for key, array in one.arrays.items() if array.tobytes() != other.arrays[key].tobytes()]
    return (arrays, one.counters == other.counters) == ([], True)


@pytest.mark.parametrize("order", ["listed", "latest", "memory"])
@pytest.mark.parametrize("name", TEXTS)
def test_another_order_gives_equal_numbers(name, order):
    assert is_same(train(name, order), train(name, "fewest"))


@pytest.mark.parametrize("name", ["td3", "td3 at once", "gan at once"])
def test_there_are_orders_to_choose_from(name):
    kinds = [plan(name, order).program.mode("train").functions for order in ("fewest", "listed", "latest", "memory")]
    assert len({repr(each) for each in kinds}) > 1


@pytest.mark.parametrize("name", WHOLE)
def test_the_same_steps_once_more_give_the_same_bits(name):
    assert is_same(train(name, "fewest"), train(name, "fewest", again=1))
