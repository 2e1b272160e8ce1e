"""What is compared with other libraries is one step: the variants that need none of them begin with the same losses."""

from __future__ import annotations

import io

import pytest

from benchmarks.peers import by_hand, with_stepgraph
from benchmarks.peers.__main__ import find_difference
from benchmarks.peers.pace import CHECKED, Pace
from benchmarks.peers.steps import BATCHES, STEPS, write

LOOPS = {
    "idiom": by_hand.idiom,
    "emitted": with_stepgraph.emitted,
    "step": with_stepgraph.built,
    "run": with_stepgraph.run,
}


class Over(Exception):
    """No more steps are wanted."""


class Short(Pace):
    """A pace of the first steps alone."""

    def slices(self):
        yield CHECKED
        raise Over


def take(loop, name):
    """Return the losses of the first steps of a loop."""
    workload = STEPS[name]()
    pace = Short(workload.batches(BATCHES), io.StringIO(), io.StringIO(), 0.0)
    with pytest.raises(Over):
        loop(workload, pace)
    return pace.losses


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", STEPS)
def test_a_loop_begins_with_the_losses_of_the_expert(name, loop, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPGRAPH_PEERS", str(tmp_path))
    if loop == "run":
        write(STEPS[name](), tmp_path)
    found, expected = take(LOOPS[loop], name), take(by_hand.expert, name)
    assert find_difference(found, expected) < 1e-5
    assert len({tuple(each.values()) for each in found}) == CHECKED  # every step changes something


def test_losses_of_another_step_differ():
    losses = [{"loss": 1.0 + number} for number in range(CHECKED)]
    assert find_difference([*losses[:-1], {"loss": 5.01}], losses) == pytest.approx(0.002)
    assert find_difference([*losses[:-1], {"error": 5.0}], losses) == float("inf")
    assert find_difference(losses[:-1], losses) == float("inf")
