"""Losses: PyTorch's definitions, with right second derivatives."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import promoted, typed
from runtime.backends.tensorflow.library.functions import absolute, norm, normalize
from runtime.support.fitting import wanted_axes, wanted_target


def reduced(values: tf.Tensor, reduction: str) -> tf.Tensor:
    """Return the mean or sum of values, or for ``none`` the values."""
    if reduction == "none":
        return values
    return tf.reduce_mean(values) if reduction == "mean" else tf.reduce_sum(values)


def classes_last(x: tf.Tensor, axis: int) -> tf.Tensor:
    """Return a tensor with the axis of its classes moved to the end; a vector has no other."""
    rank = x.shape.rank
    if rank is None:
        is_moved = tf.range(tf.rank(x)) == counted_axis(axis, x)
        return tf.transpose(x, tf.argsort(tf.cast(is_moved, tf.int32), stable=True))
    axis = axis % rank if rank > 1 else 0
    return x if axis == rank - 1 else tf.transpose(x, [*(each for each in range(rank) if each != axis), axis])


def matched(a: tf.Tensor, b: tf.Tensor, fewest: int = 0, most: int | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two operands of a loss, which have one shape, with ``fewest`` to ``most`` axes.

    Where no axes are asked for, one of them may have none. Raises ValueError for shapes that do not fit, and
    InvalidArgumentError where only the running graph knows them.
    """
    if fewest == 0 and 0 in (a.shape.rank, b.shape.rank):
        return a, b
    rank = a.shape.rank if b.shape.rank is None else b.shape.rank
    counted = rank is None or (rank >= fewest and (most is None or rank <= most))
    message = wanted_axes(fewest, most)
    if not counted or not a.shape.is_compatible_with(b.shape):
        raise ValueError(f"{unlike(a, b)} do not fit: {message}")
    same, axes = same_sizes(tf.shape(a), tf.shape(b)), tf.rank(a)
    if fewest:
        fits = tf.logical_and(same, tf.logical_and(axes >= fewest, axes <= (most or axes)))
    else:
        fits = tf.logical_or(same, tf.logical_or(axes == 0, tf.rank(b) == 0))
    return after_check(fits, a, b, message)


def matched_classes(scores: tf.Tensor, target: tf.Tensor, axis: int = 1, shares: bool = True) -> tuple[Any, Any]:
    """Return scores with classes along ``axis`` and a target that fits them; raise as :func:`matched` does.

    Class numbers have the shape of the scores without that axis; probabilities, where ``shares``, have their shape.
    """
    rank, sizes, at = scores.shape.rank, tf.shape(scores), counted_axis(axis, scores)
    if rank is not None and not 0 <= at < rank:
        raise ValueError(f"{unlike(scores, target)} do not fit: the scores have no axis {axis} of classes")
    is_shares = target.dtype.is_floating
    wanted = scores.shape if is_shares or rank is None else scores.shape[:at] + scores.shape[at + 1 :]
    message = wanted_target(axis, shares)
    if (is_shares and not shares) or target.dtype == tf.bool or not target.shape.is_compatible_with(wanted):
        raise ValueError(f"{unlike(scores, target)} do not fit: {message}")
    expected = sizes if is_shares else tf.concat((sizes[:at], sizes[at + 1 :]), 0)
    fits = tf.logical_and(same_sizes(expected, tf.shape(target)), tf.logical_and(at >= 0, at < tf.rank(scores)))
    return after_check(fits, scores, target, message)


def matched_numbers(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two tensors of class numbers of one shape; raise as :func:`matched` does."""
    if not a.shape.is_compatible_with(b.shape):
        raise ValueError(f"{unlike(a, b)} do not fit: {wanted_target(1, shares=False)}")
    return after_check(same_sizes(tf.shape(a), tf.shape(b)), a, b, wanted_target(1, shares=False))


def same_sizes(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return whether two shapes of any length are equal."""
    padded = tf.concat((other, one), 0)[: tf.size(one)]  # as long as ``one``: shapes of unequal length do not compare
    return tf.logical_and(tf.equal(tf.size(one), tf.size(other)), tf.reduce_all(tf.equal(one, padded)))


def after_check(fits: tf.Tensor, a: tf.Tensor, b: tf.Tensor, message: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two operands after an assertion about their shapes; without one if the graph knows them."""
    if None not in (*sizes_of(a), *sizes_of(b)):
        return a, b
    said = ["shapes", tf.shape(a), "and", tf.shape(b), f"({b.dtype.name}) do not fit: {message}"]
    with tf.control_dependencies([tf.debugging.Assert(fits, said)]):  # XLA leaves assertions out: there this fails
        fitting = tf.reshape(tf.zeros(1), [tf.where(fits, 1, 2)])
    with tf.control_dependencies([fitting]):
        return tf.identity(a), tf.identity(b)


def counted_axis(axis: int, x: tf.Tensor) -> Any:
    """Return an axis counted from the first one: a tensor where only the running graph knows how many there are."""
    return axis if axis >= 0 else axis + (tf.rank(x) if x.shape.rank is None else x.shape.rank)


def sizes_of(x: tf.Tensor) -> list[int | None]:
    """Return the sizes of a tensor, None where a graph leaves them open."""
    return [None] if x.shape.rank is None else x.shape.as_list()


def unlike(a: tf.Tensor, b: tf.Tensor) -> str:
    """Return the shapes of two operands, with the type of the second."""
    return f"shapes {sizes_of(a)} and {sizes_of(b)} ({b.dtype.name})".replace("None", "?")


def bce(probabilities: Any, target: Any, reduction: str = "mean") -> tf.Tensor:
    """Return the binary cross-entropy of probabilities and a target, either of which may be a number."""
    return reduced(bounded_entropy(*promoted(probabilities, target)), reduction)


SMALLEST = 9.999999960041972e-13
"""1e-12 in float32, as PyTorch bounds the gradient of bce in every type."""


@tf.custom_gradient
def bounded_entropy(p: tf.Tensor, target: tf.Tensor) -> Any:
    """Return -(t log p + (1 - t) log(1 - p)), both logarithms at least -100; its gradient as PyTorch bounds it."""

    def derive(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the gradients of both, summed to their shapes."""
        to_p = upstream * (p - target) / tf.maximum((1.0 - p) * p, SMALLEST)
        return summed_to(to_p, p), summed_to(upstream * (tf.math.log1p(-p) - tf.math.log(p)), target)

    yes, no = (tf.maximum(each, -100.0) for each in (tf.math.log(p), tf.math.log1p(-p)))
    return -(target * yes + (1.0 - target) * no), derive


def summed_to(x: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Return a gradient summed over what was broadcast."""
    return tf.reduce_sum(x) if like.shape.rank == 0 and x.shape.rank != 0 else x


def bce_with_logits(logits: Any, target: Any, reduction: str = "mean") -> tf.Tensor:
    """Return the binary cross-entropy of logits and a target, either of which may be a number."""
    x, target = promoted(logits, target)
    positive = x >= 0  # at 0 the derivatives of max(x, 0) and abs(x) would be 0 where those of their sum are not
    top, away = tf.where(positive, x, tf.zeros_like(x)), tf.where(positive, -x, x)
    return reduced(top - x * target + tf.math.log1p(tf.exp(away)), reduction)


def mse(prediction: Any, target: Any, reduction: str = "mean") -> tf.Tensor:
    """Return the squared difference of a prediction and a target, either of which may be a number."""
    return reduced(tf.math.squared_difference(*promoted(prediction, target)), reduction)


def l1(prediction: Any, target: Any, reduction: str = "mean") -> tf.Tensor:
    """Return the absolute difference of a prediction and a target, either of which may be a number."""
    return reduced(absolute(tf.subtract(*promoted(prediction, target))), reduction)


def huber(prediction: Any, target: Any, delta: Any = 1.0, reduction: str = "mean") -> tf.Tensor:
    """Return the Huber loss of a prediction and a target, either of which may be a number."""
    distance = tf.abs(tf.subtract(*promoted(prediction, target)))
    delta = typed(delta, distance.dtype)
    is_near = distance < delta
    near = tf.where(is_near, distance, tf.zeros_like(distance))  # squared where it is far, its gradient were 0 * inf
    return reduced(tf.where(is_near, 0.5 * near * near, delta * (distance - 0.5 * delta)), reduction)


def cross_entropy(
    logits: tf.Tensor,
    target: tf.Tensor,
    axis: int = 1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tf.Tensor:
    """Return the cross-entropy of logits with classes along ``axis``; the target has class numbers or probabilities.

    What has the class number ``ignore_index`` is left out of the sum and of the count.
    """
    is_shares = target.dtype.is_floating
    if ignore_index is not None and not is_shares:
        every = cross_entropy(logits, leave_out(target, ignore_index), axis, label_smoothing, reduction="none")
        return kept(every, target, ignore_index, reduction)
    logits, target = classes_last(logits, axis), classes_last(target, axis) if is_shares else target
    is_plain = not (tf.is_tensor(label_smoothing) or label_smoothing)
    if is_plain and not is_shares:
        return reduced(sparse_entropy(target, logits), reduction)
    log_p = tf.nn.log_softmax(logits)
    even = -tf.reduce_mean(log_p, -1)
    chosen = -tf.reduce_sum(tf.cast(target, log_p.dtype) * log_p, -1) if is_shares else -picked(log_p, target)
    share = typed(label_smoothing, log_p.dtype)
    return reduced(chosen if is_plain else (1.0 - share) * chosen + share * even, reduction)


def sparse_entropy(target: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of class numbers of any whole type, classes along the last axis."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(target, tf.int64), logits)


def picked(log_p: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the entries at class numbers along the last axis."""
    rows = tf.reshape(log_p, (tf.size(target), tf.shape(log_p)[-1]))
    found = tf.gather(rows, tf.reshape(tf.cast(target, tf.int64), [-1]), axis=1, batch_dims=1)
    return tf.reshape(found, tf.shape(target))


def leave_out(target: tf.Tensor, ignore_index: int) -> tf.Tensor:
    """Return class numbers with 0 for the one that is left out, which need be none."""
    return tf.where(target == tf.cast(ignore_index, target.dtype), tf.zeros_like(target), target)


def kept(every: tf.Tensor, target: tf.Tensor, ignore_index: int, reduction: str) -> tf.Tensor:
    """Return the losses of all elements with zeros for those that are left out, their sum, or the mean of the others.

    The mean of none is NaN, with a gradient of zeros.
    """
    every = tf.where(target == tf.cast(ignore_index, target.dtype), tf.zeros_like(every), every)
    if reduction != "mean":
        return reduced(every, reduction)
    return quotient(tf.reduce_sum(every), kept_count(target, ignore_index, every))


def nll(
    log_probabilities: tf.Tensor, target: tf.Tensor, ignore_index: int | None = None, reduction: str = "mean"
) -> tf.Tensor:
    """Return minus the log-probability of the target class, classes along axis 1; ``ignore_index`` is left out."""
    if ignore_index is not None:
        every = nll(log_probabilities, leave_out(target, ignore_index), reduction="none")
        return kept(every, target, ignore_index, reduction)
    return reduced(-picked(classes_last(log_probabilities, 1), target), reduction)


def kl_div(student: tf.Tensor, teacher: tf.Tensor, temperature: float = 1.0, reduction: str = "mean") -> tf.Tensor:
    """Return KL(teacher, student) of two sets of logits, classes along axis 1; the mean is over the batch."""
    student, teacher = classes_last(student, 1), classes_last(teacher, 1)
    log_s, log_t = (tf.nn.log_softmax(each / typed(temperature, each.dtype)) for each in (student, teacher))
    divergence = tf.reduce_sum(tf.exp(log_t) * (log_t - log_s), -1)
    if reduction != "mean":
        return reduced(divergence, reduction)
    return tf.reduce_sum(divergence) / tf.cast(tf.shape(divergence)[0], divergence.dtype)


def hinge(score: Any, target: Any, reduction: str = "mean") -> tf.Tensor:
    """Return max(0, 1 - target * score) for targets of -1 and 1."""
    score, target = promoted(score, target)
    margin = 1.0 - target * score
    return reduced(tf.maximum(tf.zeros([], margin.dtype), margin), reduction)  # its gradient selects, relu's multiplies


def cosine_distance(a: tf.Tensor, b: tf.Tensor, reduction: str = "mean") -> tf.Tensor:
    """Return 1 - cos(a, b) along the last axis; lengths are at least 1e-8."""
    a, b = (x / tf.maximum(norm(x, -1, keepdims=True), tf.constant(1e-8, x.dtype)) for x in (a, b))
    return reduced(1.0 - tf.reduce_sum(a * b, -1), reduction)


def nt_xent(a: tf.Tensor, b: tf.Tensor, temperature: float = 0.5, reduction: str = "mean") -> tf.Tensor:
    """Return SimCLR's loss of two views (Chen et al. 2020): each row must tell its other view from all other rows."""
    rows = normalize(tf.concat((a, b), axis=0), axis=1)
    count = tf.shape(rows)[0]
    similarities = tf.matmul(rows, rows, transpose_b=True) / typed(temperature, rows.dtype)
    others = tf.where(tf.eye(count, dtype=tf.bool), tf.constant(-float("inf"), rows.dtype), similarities)
    partners = tf.roll(tf.range(count), count // 2, axis=0)
    return reduced(sparse_entropy(partners, others), reduction)


def wasserstein(score: tf.Tensor, sign: float = 1.0, reduction: str = "mean") -> tf.Tensor:
    """Return sign * score: the critic's loss (Arjovsky et al. 2017)."""
    return typed(sign, score.dtype) * reduced(score, reduction)


def super_loss(
    losses: tf.Tensor, threshold: Any = None, regularization: Any = 1.0, reduction: str = "mean"
) -> tf.Tensor:
    """Return (l - t) s + r (log s)^2 with the confidence s that makes it least (Castells et al. 2020).

    ``threshold`` t: what a sample's loss is compared with, the mean of the batch where there is none; a constant for
    gradients, as s is.
    """
    held = tf.stop_gradient(losses)
    limit = tf.reduce_mean(held) if threshold is None else typed(threshold, losses.dtype)
    weight = typed(regularization, losses.dtype)
    beyond = tf.maximum((held - limit) / weight, typed(-2 / math.e, losses.dtype))
    confidence = -lambert_w(0.5 * beyond)  # its logarithm
    return reduced((losses - limit) * tf.exp(confidence) + weight * confidence**2, reduction)


def lambert_w(y: tf.Tensor) -> tf.Tensor:
    """Return w with w e^w = y on the principal branch, y >= -1/e (Corless et al. 1996): series, then Halley's steps."""
    tiny = typed(1e-4, y.dtype)
    p = tf.sqrt(tf.maximum(2 * (typed(math.e, y.dtype) * y + 1), tf.zeros_like(y)))
    w = tf.where(y < 0, -1 + p - p**2 / 3 + typed(11 / 72, y.dtype) * p**3, tf.math.log1p(tf.nn.relu(y)))
    for _ in range(6):
        error = w * tf.exp(w) - y
        slope = tf.exp(w) * (w + 1) - (w + 2) * error / tf.maximum(2 * (w + 1), tiny)
        w = tf.where(p > tiny, w - error / slope, w)
    return w


def mean_of(loss: tf.Tensor | tuple[tf.Tensor, Any]) -> tf.Tensor:
    """Return a user's loss, which may come as (sum, count) and then is their quotient."""
    return quotient(*pair_of(loss)) if isinstance(loss, tuple) else loss


def uncounted(loss: Any) -> Any:
    """Return a user's loss that is a mean over rows; raise ValueError where it brings its own count."""
    if isinstance(loss, tuple):
        found = "it returns (sum, count), where it is taken for one number whose count is that of the rows"
        raise ValueError(
            f"{found}: it must return the same in every step, and micro-batches take no gradient by a value"
        )
    return loss


def pair_of(loss: tuple[tf.Tensor, Any]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum and the count of a user's loss; raise ValueError where it is one number."""
    if not isinstance(loss, tuple):
        raise ValueError("it returns one number, but (sum, count) before: it must return the same in every step")
    total, count = loss
    return total, tf.stop_gradient(tf.cast(count, wide_of(total.dtype)))


def pair_or_rows(loss: Any, like: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum and the count of a user's loss; one number is the mean over the rows of ``like``."""
    rows = tf.concat((tf.shape(like), [1]), 0)[0]
    return pair_of(loss if isinstance(loss, tuple) else (loss * tf.cast(rows, loss.dtype), rows))


def sum_and_count(losses: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum of elements, and how many they are."""
    return pair_of((tf.reduce_sum(losses), tf.size(losses)))


def pieces_of(loss: Any) -> tf.Tensor:
    """Return as many zeros as a user's loss has pieces: two for (sum, count), else one."""
    return tf.zeros(2 if isinstance(loss, tuple) else 1)


def kept_count(target: tf.Tensor, ignore_index: int, like: tf.Tensor) -> tf.Tensor:
    """Return how many elements of a target are not left out, in the type of ``like``, or float32 if it is narrower."""
    count = tf.math.count_nonzero(target != tf.cast(ignore_index, target.dtype))
    return tf.cast(count, wide_of(like.dtype))


def wide_of(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which to count elements of values of some dtype."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype


def quotient(total: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return a sum by its count: NaN where nothing was counted, with a gradient of zeros."""
    share = tf.cast(count, total.dtype)
    nothing = tf.cast(math.nan, total.dtype)
    return tf.where(share == 0, nothing, total / tf.where(share == 0, tf.ones_like(share), share))


def inverse(count: tf.Tensor) -> tf.Tensor:
    """Return one by a count; zero where nothing was counted, since then a sum over it has a gradient of zeros."""
    return tf.math.divide_no_nan(tf.ones_like(count), count)
