"""What the benchmarks compare are the same steps: five of them give the same numbers in every variant."""

from __future__ import annotations

import pytest
import torch

from benchmarks.floors import FLOORS
from benchmarks.peers.steps import OWN
from benchmarks.run import FLOOR, VARIANTS, WORKLOADS, find_variants, train

STEPS = (*WORKLOADS, *OWN)


def each(workloads):
    return pytest.mark.parametrize("workload", workloads, ids=lambda workload: workload.name)


every_workload = each(STEPS)


def pairs(exact):
    """Pair each step whose expert sums in the order of the spec, or in another, with the variants that do so."""
    found = [each for each in STEPS if each.exact == exact]
    return pytest.mark.parametrize(
        ("workload", "variant"),
        [(each, name) for each in found for name in find_variants(each) if name not in ("idiom", "expert")],
        ids=lambda each: each if isinstance(each, str) else each.name,
    )


@pytest.fixture
def in_float64():
    """Make nets and batches in float64, where rounding is no excuse for another step."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pairs(exact=True)
def test_five_steps_are_those_of_the_expert_to_the_bit(workload, variant):
    losses, states = train(workload, variant)
    expected, theirs = train(workload, "expert")
    assert losses == expected
    assert [name for name in theirs if not theirs[name].equal(states[name])] == []


@pytest.mark.sample(2)
@pairs(exact=False)
def test_five_steps_differ_by_rounding_from_an_expert_who_joins_calls(workload, variant, in_float64):
    losses, states = train(workload, variant)
    expected, theirs = train(workload, "expert")
    assert losses == pytest.approx(expected, rel=1e-11)
    assert [name for name in theirs if not theirs[name].allclose(states[name], rtol=1e-11, atol=1e-12)] == []


@every_workload
def test_the_losses_of_the_idiom_differ_from_them_by_rounding_alone(workload, in_float64):
    # Its optimizer and its average round otherwise. Weights are not compared: a bias before BatchNorm has a gradient
    # of pure rounding, out of which Adam makes whole steps, and no loss feels them.
    assert train(workload, "idiom")[0] == pytest.approx(train(workload, "expert")[0], rel=1e-11)


@every_workload
def test_five_steps_move_every_model(workload):
    before = {name: [weight.clone() for weight in net.parameters()] for name, net in workload().nets.items()}
    made = workload()
    step = VARIANTS["emitted step"](made)
    for batch in made.batches(5):
        step(batch)
    after = {name: list(net.parameters()) for name, net in made.nets.items()}
    assert [name for name, weights in before.items() if any(map(torch.equal, weights, after[name]))] == []


def test_only_steps_that_have_a_floor_are_timed_next_to_it():
    assert [each.name for each in STEPS if FLOOR in find_variants(each)] == ["cyclegan", "accumulated-mlp"]
    assert {*FLOORS} < {*WORKLOADS}
