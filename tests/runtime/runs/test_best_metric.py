"""The best so far, against the definition of it: looked for in the whole history each time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.train.loop import BestMetric, KeptStanding

VALUES = st.lists(st.sampled_from([0.0, 0.5, 0.55, 1.0, 2.0, -1.0, math.inf, -math.inf, math.nan]), max_size=12)


def find_by_hand(values, sign, delta):
    """Return the place of the best of some values and how many came after it; None while all were no numbers."""
    best, place = None, None
    for index, value in enumerate(values):
        if (best is None and not math.isnan(value)) or (best is not None and sign * (value - best) > delta):
            best, place = value, index
    return best, place, len(values) if place is None else len(values) - 1 - place


@given(VALUES, st.sampled_from(["min", "max"]), st.sampled_from([0.0, 0.1]))
def test_the_standing_is_that_of_the_whole_history(values, mode, delta):
    watched = BestMetric(metric="loss", mode=mode, min_delta=delta)
    for index, value in enumerate(values):
        watched = watched.update(index, {"loss": value, "other": 7.0})
    assert (watched.value, watched.step, watched.waited) == find_by_hand(values, 1 if mode == "max" else -1, delta)


def test_figures_without_the_metric_change_nothing():
    watched = BestMetric(metric="loss", mode="min", value=1.0, step=3, waited=2)
    assert watched.update(9, {"accuracy": 0.5}) is watched


@given(VALUES, st.sampled_from(["min", "max"]))
def test_it_comes_back_from_a_checkpoint_to_the_last_bit(values, mode):
    begun = watched = BestMetric(metric="loss", mode=mode, min_delta=0.1)
    for index, value in enumerate([*values, 0.1 + 0.2]):
        watched = watched.update(index, {"loss": value})
    assert begun.restored(KeptStanding.read(watched.to_plain())) == watched


@pytest.mark.parametrize(("metric", "mode"), [("accuracy", "min"), ("loss", "max")])
def test_that_of_another_metric_or_goal_counts_for_nothing(metric, mode):
    kept = BestMetric(metric="loss", mode="min", value=0.1, step=4, waited=7).to_plain()
    other = BestMetric(metric=metric, mode=mode)
    assert other.restored(KeptStanding.read(kept)) == other


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": 3}, "'value': input should be a valid string"),
        ({"waited": "x"}, "'waited': input should be a valid integer"),
    ],
)
def test_what_is_no_standing_is_an_error(change, told):
    kept = BestMetric(metric="loss", mode="min").to_plain()
    with pytest.raises(ValueError, match=told):
        KeptStanding.read({**kept, **change})
