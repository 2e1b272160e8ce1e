"""Ten steps of more examples equal pure functions in float64, with the same random numbers."""

from __future__ import annotations

import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.conformance.pure import fgsm, sac, stylegan2, tied_lm, uncertainty, wgan_gp
from tests.conformance.pure.mathematics import World
from tests.conformance.pure.reference import Advance, Reference, Tensors

SINGLE = tuple(module.REFERENCE for module in (wgan_gp, fgsm, uncertainty, sac, tied_lm))
REFERENCES = (*SINGLE, stylegan2.LAZY, stylegan2.ONCE, stylegan2.FACTORS)
MISTAKES = [(each, name) for each in REFERENCES for name in each.mutants]


def built(reference: Reference, order: str) -> Step:
    """Return the step of an example, in float64."""
    plan = compile_step(load(reference.path, reference.overrides()), order=order)
    return build(plan, device="cpu", seed=5, dtype="float64")


def numbers_of(step: Step) -> Tensors:
    """Return copies of all weights as ``model.parameter``, and of all states as ``state.name``."""
    found = {name: value for name, value in step.tensors().items() if name.startswith(("models.", "state."))}
    return {name.removeprefix("models."): value.detach().clone() for name, value in found.items()}


def compare(reference: Reference, advance: Advance, order: str = "fewest") -> float:
    """Return the greatest relative difference in ten steps of the losses, and of all numbers at their end."""
    step = built(reference, order)
    world, found = World(weights=numbers_of(step)), [0.0]
    for batch in reference.batches():
        ours = step(batch)
        drawn = {name: ours[name] for name in reference.drawn}
        world, theirs = advance(world, {**batch, **drawn})
        assert theirs.keys() == ours.keys() & {*reference.losses}
        found.extend(apart(ours[name], theirs[name]) for name in theirs)
    ended = numbers_of(step)
    assert ended.keys() == world.weights.keys()
    return max([*found, *(apart(ended[name], value) for name, value in world.weights.items())])


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return how far two tensors are apart, relative to the greatest element, at least 1."""
    assert ours.shape == theirs.shape
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)).item()


@pytest.mark.sample(3)
@pytest.mark.parametrize("order", ["fewest", "latest"])
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
def test_ten_steps_of_an_example_equal_the_pure_function(reference: Reference, order: str) -> None:
    assert compare(reference, reference.advance, order) <= 1e-10


@pytest.mark.sample(3)
@pytest.mark.parametrize(("reference", "mistake"), MISTAKES, ids=lambda each: getattr(each, "name", each))
def test_the_same_function_with_one_mistake_is_told_apart(reference: Reference, mistake: str) -> None:
    assert compare(reference, reference.mutants[mistake]) > 1e-6
