"""What the benchmarks compare are the same steps: five of them give the same numbers in every variant."""

from __future__ import annotations

import pytest

from benchmarks.run import VARIANTS
from benchmarks.workloads import WORKLOADS

every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


def train(workload, variant):
    """Take five steps; return their losses, and all weights and buffers at the end."""
    made = workload()
    step = VARIANTS[variant](made)
    outputs = [step(batch) for batch in made.batches(5)]
    losses = [float(value) for output in outputs for name, value in output.items() if name != "scores"]
    states = {name: net.state_dict() for name, net in made.nets.items()}
    return losses, {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}


@pytest.mark.parametrize("variant", ["emitted step", "built step"])
@every_workload
def test_five_steps_of_ours_are_those_of_the_expert_to_the_bit(workload, variant):
    losses, ours = train(workload, variant)
    expected, theirs = train(workload, "expert")
    assert losses == expected
    assert [name for name in theirs if not theirs[name].equal(ours[name])] == []


@every_workload
def test_the_losses_of_the_idiom_differ_from_them_by_rounding_alone(workload):
    # Its optimizer and its average round otherwise. Weights are not compared: a bias before BatchNorm has a gradient
    # of pure rounding, out of which Adam makes whole steps, and no loss feels them.
    assert train(workload, "idiom")[0] == pytest.approx(train(workload, "expert")[0], rel=1e-6)


@every_workload
def test_five_steps_move_every_model(workload):
    before = {name: net[0].weight.clone() for name, net in workload().nets.items()}
    after = train(workload, "emitted step")[1]
    assert [name for name, weight in before.items() if after[f"{name}.0.weight"].equal(weight)] == []
