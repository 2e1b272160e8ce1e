"""One list of specs, two backends: the same numbers."""

from __future__ import annotations

import pytest

from graphspec.declare.graph import GraphSpec
from tests.conformance.distance import apart, distances, find_apart
from tests.conformance.scenario import BACKENDS, Scenario
from tests.conformance.scenarios import catalogue, examples, programs, specs
from tests.conformance.training import train

pytestmark = pytest.mark.needs("torch", "tensorflow")
SCENARIOS = (*examples(), *specs(), *catalogue(), *programs())
FEW = ("autoencoder", "dino", "moco", "tied-lm", "vq-vae")
"""Of these, some that differ, which every run takes."""
SINGLE = [one for one in (*examples(), *specs()) if not one.models]
"""What is trained in float32 as well, which takes as long again."""
DIGIT = 10
"""How much of PyTorch's rounding error TensorFlow's may be: the kernels of a CPU choose in which order they add up, and
of two kinds of CPU one gave up to twice PyTorch's error, the other up to six times."""
FLOOR = 1e-6
"""Eight units in the last place of a float32 of size 1: sums are added up in another order, a few at a time."""


def each(scenarios, often=None):
    """Return the parameter; what one process has trained for one test it need not train for another.

    Where names are given that every run takes, all others are left to the long set.
    """

    def mark(one):
        left = often is not None and one.name not in often
        return [pytest.mark.xdist_group(f"trained {one.name}"), *([pytest.mark.long] if left else [])]

    return pytest.mark.parametrize("scenario", [pytest.param(one, marks=mark(one), id=one.name) for one in scenarios])


def rules(spec: GraphSpec) -> set[str | None]:
    """Return the names of the optimizers of a spec."""
    holders = (*spec.models.values(), *spec.ops.values())
    cells = (getattr(holder, "optimizer", None) for holder in holders)
    return {cell.name for cell in cells if cell is not None}


@pytest.mark.sample(24)
@each(SCENARIOS)
def test_twenty_steps_in_float64_are_the_same_on_both_backends(scenario: Scenario) -> None:
    one, other = (train(scenario, backend) for backend in BACKENDS)
    assert find_apart(one, other) == {}


@pytest.mark.sample(3)
@each(SINGLE, FEW)
def test_float32_on_tensorflow_is_within_a_digit_as_near_to_float64_as_on_pytorch(scenario: Scenario) -> None:
    exact = train(scenario, "torch")
    theirs, ours = (max(distances(exact, train(scenario, name, "float32")).values()) for name in BACKENDS)
    assert ours <= max(DIGIT * theirs, FLOOR)


@each([one for one in SINGLE if rules(one.load()) <= {"sgd"}], FEW)
def test_the_first_step_of_sgd_in_float32_is_the_same_to_five_digits(scenario: Scenario) -> None:
    one, other = (train(scenario, backend, "float32") for backend in BACKENDS)
    for found, expected in ((other.outputs[0], one.outputs[0]), (other.first.arrays, one.first.arrays)):
        assert max(apart(value, found[name]) for name, value in expected.items()) <= 1e-5
