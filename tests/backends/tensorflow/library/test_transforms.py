"""Transforms of gradient sets are PyTorch's, and so are their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from runtime.backends.tensorflow.library import transforms as ours
from runtime.backends.torch.library import transforms as theirs

RANDOM = np.random.default_rng(4)
SHAPES = ((3, 2), (2, 3, 2), (4,), ())
ONE, OTHER, THIRD, WEIGHTS, SEEDS = ([RANDOM.normal(size=shape) for shape in SHAPES] for _ in range(5))
TWO = [0.3 * y - 0.5 * x for x, y in zip(ONE, OTHER, strict=True)]
ORDER = RANDOM.random((3, 3))
NOISE = RANDOM.normal(size=sum(each.size for each in ONE))


def convert(value):
    """Return arrays as constants of TensorFlow."""
    return tuple(map(tf.constant, value)) if isinstance(value, list) else tf.constant(value)


def convert_torch(value):
    """Return arrays as tensors of PyTorch."""
    return tuple(map(torch.tensor, value)) if isinstance(value, list) else torch.tensor(value)


TRANSFORMS = {
    "clip_each": lambda lib, to, a, b, c: lib.clip_each(a, 0.5, 1e-3),
    "clip_agc": lambda lib, to, a, b, c: lib.clip_agc(a, to(WEIGHTS), 0.1),
    "clip_agc-last": lambda lib, to, a, b, c: lib.clip_agc(a, to(WEIGHTS), 0.1, 2.0, -1),
    "scale_set": lambda lib, to, a, b, c: lib.scale_set(a, 0.1),
    "add_noise": lambda lib, to, a, b, c: lib.add_noise(a, to(NOISE)),
    "centralize": lambda lib, to, a, b, c: lib.centralize(a),
    "centralize-last": lambda lib, to, a, b, c: lib.centralize(a, -1),
    "normalize_set": lambda lib, to, a, b, c: lib.normalize_set(a),
    "normalize_each": lambda lib, to, a, b, c: lib.normalize_each(a),
    "project": lambda lib, to, a, b, c: lib.project(a, b),
    "pcgrad": lambda lib, to, a, b, c: lib.pcgrad([a, b, c]),
    "pcgrad-drawn": lambda lib, to, a, b, c: lib.pcgrad([a, b, c], to(ORDER)),
}


def differentiate(transform, sets):
    """Return what a transform makes of sets in TensorFlow, and the slopes of a weighted sum of that."""
    given = [convert(each) for each in sets]
    with tf.GradientTape() as tape:
        tape.watch(given)
        made = transform(ours, convert, *given)
        total = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(made, convert(SEEDS), strict=True)])
    return made, [each for one in tape.gradient(total, given, unconnected_gradients="zero") for each in one]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_and_slopes_are_pytorchs(name):
    transform, sets = TRANSFORMS[name], (ONE, TWO, THIRD)
    made, slopes = differentiate(transform, sets)
    given = [tuple(each.requires_grad_() for each in convert_torch(one)) for one in sets]
    meant = transform(theirs, convert_torch, *given)
    total = sum((a * b).sum() for a, b in zip(meant, convert_torch(SEEDS), strict=True))
    leaves = [each for one in given for each in one]
    found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    for mine, other in zip((*made, *slopes), (*meant, *found), strict=True):
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-11, atol=1e-13)


def test_opposite_and_empty_gradients_give_numbers():
    zero = convert([0.0 * each for each in ONE])
    opposite = ours.scale_set(convert(ONE), -1.0)
    assert max(np.abs(each.numpy()).max() for each in ours.pcgrad([convert(ONE), opposite])) < 1e-12
    for made in (ours.pcgrad([zero, convert(ONE)]), ours.project(convert(ONE), zero)):
        for mine, given in zip(made, ONE, strict=True):
            np.testing.assert_allclose(mine.numpy(), given)
    for made in (ours.normalize_set(zero), ours.normalize_each(zero), ours.clip_agc(zero, zero, eps=0.0)):
        assert max(np.abs(each.numpy()).max() for each in made) == 0
