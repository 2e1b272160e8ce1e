"""How far a run is, written into a checkpoint and read back."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.train.loop import BestMetric, RunState

LOSS = BestMetric(metric="loss", mode="min")
FLOATS = st.floats(allow_nan=False)


def through(state, **begun):
    """Return a state that was written as JSON and read back into a beginning."""
    read = RunState(**begun)
    read.restore(json.loads(json.dumps(state.to_plain(state.latest), allow_nan=False)))
    return read


@given(st.integers(0, 10**9), st.floats(0, 1e9), st.booleans(), st.dictionaries(st.text(), FLOATS), FLOATS)
def test_it_comes_back_to_the_last_bit(made, seconds, due, latest, value):
    best = BestMetric(metric="loss", mode="min", value=value, step=made, waited=3)
    state = RunState(made=made, seconds=seconds, due=due, evaluated=made // 2, best=best, latest=latest)
    state.rows, state.planned = made // 3, (made, made + 1)
    assert through(state, best=LOSS) == state


def test_a_value_that_is_no_number_comes_back_as_such():
    assert math.isnan(through(RunState(latest={"loss": math.nan})).latest["loss"])


def test_a_run_that_watches_nothing_any_more_forgets_its_best():
    state = RunState(best=LOSS.update(3, {"loss": 1.0}), stop=LOSS)
    assert (through(state).best, through(state).stop) == (None, None)


def test_a_run_that_watches_something_now_begins_to():
    assert through(RunState(), best=LOSS, stop=LOSS) == RunState(best=LOSS, stop=LOSS)


@pytest.mark.parametrize("key", ["step", "seconds", "due", "evaluated", "best", "stop", "latest"])
def test_a_part_that_is_missing_is_an_error(key):
    kept = RunState().to_plain({})
    del kept[key]
    with pytest.raises(ValueError, match=f"{key!r}: field required"):
        RunState().restore(kept)


@pytest.mark.parametrize("latest", [{"loss": "high"}, {"loss": 1.5}])
def test_a_latest_value_that_is_not_written_exactly_is_an_error(latest):
    with pytest.raises(ValueError, match=r"latest.loss|hexadecimal"):
        RunState().restore({**RunState().to_plain({}), "latest": latest})
