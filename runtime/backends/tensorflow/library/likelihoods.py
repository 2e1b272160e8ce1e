"""Losses that are minus the log of a probability, and of overlaps and distances: PyTorch's definitions."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.comparisons import minimum, power
from runtime.backends.tensorflow.library.dtypes import promoted, typed
from runtime.backends.tensorflow.library.functions import Axes, norm
from runtime.backends.tensorflow.library.losses import bce_with_logits, reduced


def focal(logits: Any, target: Any, alpha: Any = 0.25, gamma: Any = 2.0, reduction: str = "mean") -> tf.Tensor:
    """Return the focal loss of logits and a target (Lin et al. 2017), either of which may be a number."""
    logits, target = promoted(logits, target)
    p, alpha = tf.sigmoid(logits), typed(alpha, logits.dtype)
    missed = p * (1.0 - target) + (1.0 - p) * target
    weight = (alpha * target + (1.0 - alpha) * (1.0 - target)) * power(missed, typed(gamma, logits.dtype))
    return reduced(weight * bce_with_logits(logits, target, "none"), reduction)


def dice(
    probabilities: tf.Tensor, target: tf.Tensor, axis: Axes = None, smooth: Any = 1e-7, reduction: str = "mean"
) -> tf.Tensor:
    """Return 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), summed over all axes but the first, or some."""
    p, target = promoted(probabilities, target)
    axes, smooth = tf.range(1, tf.rank(p)) if axis is None else axis, typed(smooth, p.dtype)
    shared, whole = tf.reduce_sum(p * target, axes), tf.reduce_sum(p, axes) + tf.reduce_sum(target, axes)
    return reduced(1.0 - (2.0 * shared + smooth) / (whole + smooth), reduction)


def gaussian_nll(
    mean: Any, target: Any, variance: Any, full: bool = False, eps: Any = 1e-6, reduction: str = "mean"
) -> tf.Tensor:
    """Return (log v + (mean - target)^2 / v) / 2, v being at least ``eps`` with the gradient of the variance itself."""
    mean, target, variance = promoted(mean, target, variance)
    eps = typed(eps, variance.dtype)
    held = tf.where(variance < eps, eps + (variance - tf.stop_gradient(variance)), variance)
    constant = math.log(2 * math.pi) if full else 0.0
    losses = tf.math.log(held) + tf.math.squared_difference(mean, target) / held + typed(constant, held.dtype)
    return reduced(0.5 * losses, reduction)


def poisson_nll(
    rate: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: Any = 1e-8,
    reduction: str = "mean",
) -> tf.Tensor:
    """Return the loss of counts under a Poisson distribution; a rate, or its logarithm, or a count may be a number."""
    rate, target = promoted(rate, target)
    logarithm = rate if log_input else tf.math.log(rate + typed(eps, rate.dtype))
    losses = (tf.exp(rate) if log_input else rate) - target * logarithm
    if full:
        counted = tf.where(target > 1.0, target, tf.ones_like(target))
        stirling = counted * tf.math.log(counted) - counted + 0.5 * tf.math.log(2.0 * math.pi * counted)
        losses += tf.where(target > 1.0, stirling, tf.zeros_like(target))
    return reduced(losses, reduction)


def triplet_margin(
    anchor: tf.Tensor,
    positive: tf.Tensor,
    negative: tf.Tensor,
    margin: Any = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> tf.Tensor:
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin) along the last axis (Balntas et al. 2016)."""
    anchor, positive, negative = promoted(anchor, positive, negative)
    tiny, margin = typed(1e-6, anchor.dtype), typed(margin, anchor.dtype)
    near, far = norm(anchor - positive + tiny, -1), norm(anchor - negative + tiny, -1)
    far = minimum(far, norm(positive - negative + tiny, -1)) if swap else far
    return reduced(tf.maximum(margin + near - far, tf.zeros([], near.dtype)), reduction)


NEVER = -1e30
"""The logarithm of a probability of 0, with which sums still have gradients."""


def ctc(
    logits: tf.Tensor,
    target: tf.Tensor,
    input_lengths: tf.Tensor,
    target_lengths: tf.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> tf.Tensor:
    """Return the loss of all alignments (Graves et al. 2006); the mean is that of each loss by its target's length.

    ``logits`` [batch, time, classes], ``target`` [batch, places], both lengths [batch].
    """
    wide = tf.float32 if logits.dtype in (tf.float16, tf.bfloat16) else logits.dtype
    target, last = tf.cast(target, tf.int64), 2 * tf.cast(target_lengths, tf.int32)
    blanks = tf.fill(tf.shape(target), tf.constant(blank, tf.int64))
    path = tf.reshape(tf.stack((blanks, target), axis=2), (tf.shape(target)[0], 2 * tf.shape(target)[1]))
    path = tf.pad(path, ((0, 0), (0, 1)), constant_values=blank)  # a blank around every class: [batch, 2 places + 1]
    scores = tf.gather(tf.nn.log_softmax(tf.cast(logits, wide)), path, axis=2, batch_dims=1)
    ends = aligned(tf.transpose(scores, (1, 0, 2)), path, blank, tf.cast(input_lengths, tf.int32))
    at_end = tf.gather(ends, last, axis=1, batch_dims=1)
    before = tf.gather(ends, tf.maximum(last - 1, 0), axis=1, batch_dims=1)
    losses = -logarithm_of_sum(at_end, tf.where(last > 0, before, typed(NEVER, wide)))
    is_possible = losses < -NEVER / 2
    if zero_infinity:
        losses = tf.where(is_possible, losses, tf.zeros_like(losses))
    else:  # infinite, and so is its gradient
        losses = losses / tf.where(is_possible, tf.ones_like(losses), tf.zeros_like(losses))
    if reduction == "mean":
        losses = losses / tf.cast(tf.maximum(target_lengths, 1), wide)
    return reduced(losses, reduction)


def aligned(scores: tf.Tensor, path: tf.Tensor, blank: int, lengths: tf.Tensor) -> tf.Tensor:
    """Return the log-probability of all alignments that end at each place of the path, after as many steps as it has.

    ``scores`` [time, batch, places]. A place follows itself, the one before, or the one before a blank that may be left
    out: between two different classes.
    """
    batch, places = tf.unstack(tf.shape(path))
    never = typed(NEVER, scores.dtype)
    may_skip = tf.logical_and(path != blank, path != tf.pad(path, ((0, 0), (2, 0)))[:, :-2])
    begun = tf.where(tf.range(places) == 0, tf.zeros((batch, places), scores.dtype), never)

    def advance(held: tf.Tensor, now: Any) -> tf.Tensor:
        """Return the log-probabilities after one more step; after the last they stay."""
        time, score = now
        one, two = (tf.pad(held, ((0, 0), (by, 0)), constant_values=never)[:, :-by] for by in (1, 2))
        found = logarithm_of_sum(held, one, tf.where(may_skip, two, never)) + score
        return tf.where(time < lengths[:, tf.newaxis], found, held)

    return tf.scan(advance, (tf.range(tf.shape(scores)[0]), scores), initializer=begun)[-1]


def logarithm_of_sum(*logarithms: tf.Tensor) -> tf.Tensor:
    """Return the logarithm of the sum of what some logarithms are of."""
    return tf.reduce_logsumexp(tf.stack(logarithms), axis=0)
