"""Gradients of a tape, transforms of sets, averages and copies."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import torch

from runtime.backends.tensorflow.library.averages import blend, blend_buffers, copy_into
from runtime.backends.tensorflow.library.gradients import (
    add_sets,
    clip_norm,
    clip_value,
    gradients,
    lerp_sets,
    mul_sets,
)
from runtime.backends.torch.library import averages as torch_averages
from runtime.backends.torch.library import gradients as torch_gradients

RANDOM = np.random.default_rng(0)
FIRST, SECOND = ([RANDOM.normal(size=shape) for shape in ((3, 2), (4,), ())] for _ in range(2))


def both(arrays):
    """Return a set in both frameworks."""
    return tuple(map(tf.constant, arrays)), tuple(torch.tensor(each) for each in arrays)


def assert_same(ours, theirs):
    """Check that two sets are equal."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-14, atol=1e-15)


TRANSFORMS = {
    "clip_norm": (clip_norm, torch_gradients.clip_norm, (0.7,), {}),
    "clip_norm-eps": (clip_norm, torch_gradients.clip_norm, (0.7, 1e-2), {}),
    "clip_norm-short": (clip_norm, torch_gradients.clip_norm, (100.0,), {}),
    "clip_value": (clip_value, torch_gradients.clip_value, (0.3,), {}),
    "mul-number": (mul_sets, torch_gradients.mul_sets, (), {"factors": (2.0, 0.1)}),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_one_set_are_pytorchs(name):
    ours, theirs, arguments, options = TRANSFORMS[name]
    mine, other = both(FIRST)
    assert_same(ours(mine, *arguments, **options), theirs(other, *arguments, **options))


def test_a_set_of_zeros_is_clipped_to_zeros():
    assert [each.numpy().tolist() for each in clip_norm((tf.zeros(2), tf.zeros(())), 1.0)] == [[0, 0], 0]


def test_transforms_of_several_sets_are_pytorchs():
    (a, x), (b, y) = both(FIRST), both(SECOND)
    assert_same(add_sets(a, b, a), torch_gradients.add_sets(x, y, x))
    third, other = tf.constant(0.3, tf.float64), torch.tensor(0.3, dtype=torch.float64)
    assert_same(mul_sets(a, b, third), torch_gradients.mul_sets(x, y, other))
    assert_same(lerp_sets(a, b, factors=(0.3,)), torch_gradients.lerp_sets(x, y, factors=(0.3,)))
    assert_same(lerp_sets(a, b, third), torch_gradients.lerp_sets(x, y, other))


def test_rows_that_are_looked_up_twice_have_one_gradient_the_sum():
    table, rows = tf.Variable([[1.0], [2.0]]), tf.constant([1, 1, 0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, rows) * [[1.0], [2.0], [3.0]])
    (gradient,) = gradients(tape, loss, [table])
    assert gradient.numpy().tolist() == [[3], [3]]


def reach(unconnected):
    """Return the gradients of a loss that reaches one of two variables."""
    used, unused = tf.Variable(2.0, name="used"), tf.Variable([3.0], name="unused")
    with tf.GradientTape() as tape:
        loss = used * used
    return gradients(tape, loss, [used, unused], unconnected=unconnected)


def test_a_target_that_the_loss_does_not_reach():
    with pytest.raises(RuntimeError, match="unused:0 has no gradient: the loss does not reach it"):
        reach("error")
    assert reach("skip")[1] is None
    assert reach("zero")[1].numpy().tolist() == [0]


def test_a_gradient_starts_with_what_it_is_given():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert gradients(tape, y, [x], seeds=tf.constant([42.0, -1.0]))[0].numpy().tolist() == [84, -4]


@pytest.mark.parametrize("decay", [0.0, 0.2, 0.999, 1.0])
def test_averages_are_pytorchs(decay):
    mine, other = [tf.Variable(each) for each in FIRST], [torch.tensor(each) for each in FIRST]
    tf.function(blend, autograph=False)(mine, [tf.Variable(each) for each in SECOND], decay)
    torch_averages.blend(other, [torch.tensor(each) for each in SECOND], decay)
    for ours, theirs in zip(mine, other, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-14, atol=1e-15)


def test_buffers_are_averaged_where_that_means_something_and_copied_else():
    target = [tf.Variable(1.0, dtype=tf.float64), tf.Variable(1, dtype=tf.int64)]
    source = [tf.Variable(3.0), tf.Variable(9, dtype=tf.int64)]
    blend_buffers(target, source, 0.75)
    assert [each.numpy() for each in target] == [1.5, 9]
    copy_into(target, source)
    assert [each.numpy() for each in target] == [3, 9]
