"""Transforms of gradient sets: against their papers' formulas on flat vectors, and their derivatives."""

from __future__ import annotations

import pytest
import torch

from runtime.backends.torch.library import gradients
from runtime.backends.torch.library import transforms as library

SHAPES = ((3, 2), (2, 3, 2), (4,), ())
ORDER = torch.tensor([[0.5, 0.2, 0.9], [0.1, 0.8, 0.3], [0.7, 0.4, 0.6]])


def draw(seed, scale=1.0):
    """Return a set of numbers."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(scale * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES)


ONE, TWO, THREE = draw(1), tuple(-0.5 * x + 0.3 * y for x, y in zip(draw(1), draw(2), strict=True)), draw(5)
WEIGHTS = draw(3, 10.0)


def flat(gradients):
    """Return a set as one vector."""
    return torch.cat([each.reshape(-1) for each in gradients])


TRANSFORMS = {
    "clip_norm": lambda a, b, c: gradients.clip_norm(a, 0.5),
    "mul_sets": lambda a, b, c: gradients.mul_sets(a, b, flat(c).sum()),
    "lerp_sets": lambda a, b, c: gradients.lerp_sets(a, b, flat(c).sum()),
    "sub_sets": lambda a, b, c: gradients.sub_sets(a, b),
    "clip_each": lambda a, b, c: library.clip_each(a, 0.5, 1e-3),
    "clip_agc": lambda a, b, c: library.clip_agc(a, WEIGHTS, 0.1),
    "clip_agc-last": lambda a, b, c: library.clip_agc(a, WEIGHTS, 0.1, 5.0, -1),
    "scale_set": lambda a, b, c: library.scale_set(a, -2.0),
    "add_noise": lambda a, b, c: library.add_noise(a, flat(WEIGHTS)),
    "centralize": lambda a, b, c: library.centralize(a),
    "normalize_set": lambda a, b, c: library.normalize_set(a),
    "normalize_each": lambda a, b, c: library.normalize_each(a),
    "project": lambda a, b, c: library.project(a, b),
    "pcgrad": lambda a, b, c: library.pcgrad([a, b, c]),
    "pcgrad-drawn": lambda a, b, c: library.pcgrad([a, b, c], ORDER),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_its_derivative_is_that_of_finite_differences(name):
    given = [each.clone().requires_grad_() for one in (ONE, TWO, THREE) for each in one]
    count = len(SHAPES)
    transform = TRANSFORMS[name]
    assert torch.autograd.gradcheck(
        lambda *all_: transform(all_[:count], all_[count : 2 * count], all_[2 * count :]), given, atol=1e-6
    )


def without(one, other):
    """Return a vector without what is against another."""
    return one - min(one.dot(other), torch.tensor(0.0)) / other.dot(other) * other


@pytest.mark.parametrize("order", [None, ORDER], ids=["listed", "drawn"])
def test_pcgrad_on_shares_is_pcgrad_on_vectors(order):
    vectors = [flat(each) for each in (ONE, TWO, THREE)]
    found = []
    for index, one in enumerate(vectors):
        row = range(3) if order is None else order[index].argsort().tolist()
        for other in (each for each in row if each != index):
            one = without(one, vectors[other])
        found.append(one)
    torch.testing.assert_close(flat(library.pcgrad([ONE, TWO, THREE], order)), sum(found), rtol=1e-13, atol=1e-13)


def test_opposite_and_empty_gradients_give_numbers():
    zero = tuple(torch.zeros_like(each) for each in ONE)
    opposite = library.scale_set(ONE, -1.0)
    assert flat(library.pcgrad([ONE, opposite])).abs().max() < 1e-12
    torch.testing.assert_close(flat(library.pcgrad([zero, ONE])), flat(ONE))
    torch.testing.assert_close(flat(library.project(ONE, zero)), flat(ONE))
    for transform in (library.normalize_set, library.normalize_each, library.centralize):
        assert flat(transform(zero)).abs().max() == 0
    assert flat(library.clip_agc(zero, zero, eps=0.0)).abs().max() == 0


def test_weights_are_constants_for_adaptive_clipping():
    weights = [each.clone().requires_grad_() for each in WEIGHTS]
    assert not any(each.requires_grad for each in library.clip_agc(ONE, weights))
