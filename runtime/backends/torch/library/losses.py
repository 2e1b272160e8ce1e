"""Losses that ``torch.nn.functional`` lacks, or lacks in this form."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from runtime.support.fitting import wanted_axes, wanted_target


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Return the mean or sum of values, or for ``none`` the values."""
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def same_shape(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two operands of which one may be a number, meaning a tensor filled with it."""
    if not isinstance(a, torch.Tensor):
        return torch.full_like(b, a), b
    return (a, b) if isinstance(b, torch.Tensor) else (a, torch.full_like(a, b))


def matched(
    a: torch.Tensor, b: torch.Tensor, fewest: int = 0, most: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two operands of a loss, which have one shape, with ``fewest`` to ``most`` axes; raise ValueError if not.

    Where no axes are asked for, one of them may have none: it means a tensor filled with it.
    """
    if a.shape == b.shape and a.ndim >= fewest and (most is None or a.ndim <= most):
        return a, b
    if fewest or (a.ndim and b.ndim):
        raise ValueError(f"{unlike(a, b)} do not fit: {wanted_axes(fewest, most)}")
    dtype = torch.result_type(a, b)
    return (a, b.to(dtype).expand_as(a)) if a.ndim else (a.to(dtype).expand_as(b), b)


def matched_classes(
    scores: torch.Tensor, target: torch.Tensor, axis: int = 1, shares: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores with classes along ``axis`` and a target that fits them; raise ValueError for one that does not.

    Class numbers have the shape of the scores without that axis; probabilities, where ``shares``, have their shape.
    """
    if not -scores.ndim <= axis < scores.ndim:
        raise ValueError(f"{unlike(scores, target)} do not fit: the scores have no axis {axis} of classes")
    if target.is_floating_point():
        fits = shares and target.shape == scores.shape
    else:
        at = axis % scores.ndim
        fits = target.dtype != torch.bool and target.shape == scores.shape[:at] + scores.shape[at + 1 :]
    if not fits:
        raise ValueError(f"{unlike(scores, target)} do not fit: {wanted_target(axis, shares)}")
    return scores, target


def unlike(a: torch.Tensor, b: torch.Tensor) -> str:
    """Return the shapes of two operands, with the type of the second."""
    return f"shapes {list(a.shape)} and {list(b.shape)} ({str(b.dtype).removeprefix('torch.')})"


def bce(probabilities: torch.Tensor | float, target: torch.Tensor | float, reduction: str = "mean") -> torch.Tensor:
    """Return the binary cross-entropy of probabilities and a target, either of which may be a number."""
    return F.binary_cross_entropy(*same_shape(probabilities, target), reduction=reduction)


def bce_with_logits(
    logits: torch.Tensor | float, target: torch.Tensor | float, reduction: str = "mean"
) -> torch.Tensor:
    """Return the binary cross-entropy of logits and a target, either of which may be a number."""
    return F.binary_cross_entropy_with_logits(*same_shape(logits, target), reduction=reduction)


def mse(prediction: torch.Tensor | float, target: torch.Tensor | float, reduction: str = "mean") -> torch.Tensor:
    """Return the squared difference of a prediction and a target, either of which may be a number."""
    return F.mse_loss(*same_shape(prediction, target), reduction=reduction)


def l1(prediction: torch.Tensor | float, target: torch.Tensor | float, reduction: str = "mean") -> torch.Tensor:
    """Return the absolute difference of a prediction and a target, either of which may be a number."""
    return F.l1_loss(*same_shape(prediction, target), reduction=reduction)


def huber(
    prediction: torch.Tensor | float, target: torch.Tensor | float, delta: float = 1.0, reduction: str = "mean"
) -> torch.Tensor:
    """Return the Huber loss of a prediction and a target, either of which may be a number."""
    return F.huber_loss(*same_shape(prediction, target), reduction=reduction, delta=delta)


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    axis: int = 1,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the cross-entropy of logits with classes along ``axis``; the target has class numbers or probabilities.

    What has the class number ``ignore_index`` is left out of the sum and of the count.
    """
    if axis != 1 and logits.ndim > 1:
        logits, target = logits.movedim(axis, 1), target if target.ndim < logits.ndim else target.movedim(axis, 1)
    if target.is_floating_point():
        ignore_index = -100  # of probabilities none is left out
    elif target.dtype != torch.int64:
        target = target.long()
    return F.cross_entropy(
        logits, target, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def nll(
    log_probabilities: torch.Tensor, target: torch.Tensor, ignore_index: int = -100, reduction: str = "mean"
) -> torch.Tensor:
    """Return minus the log-probability of the target class, classes along axis 1; ``ignore_index`` is left out."""
    return F.nll_loss(log_probabilities, target.long(), ignore_index=ignore_index, reduction=reduction)


def kl_div(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float = 1.0, reduction: str = "mean"
) -> torch.Tensor:
    """Return KL(teacher, student) of two sets of logits, classes along axis 1; the mean is over the batch."""
    log_s = F.log_softmax(student / temperature, dim=1)
    log_t = F.log_softmax(teacher / temperature, dim=1)
    divergence = (log_t.exp() * (log_t - log_s)).sum(dim=1)
    return divergence.sum() / divergence.shape[0] if reduction == "mean" else reduced(divergence, reduction)


def hinge(score: torch.Tensor | float, target: torch.Tensor | float, reduction: str = "mean") -> torch.Tensor:
    """Return max(0, 1 - target * score) for targets of -1 and 1."""
    score, target = same_shape(score, target)
    return reduced(torch.relu(1 - target * score), reduction)


def cosine_distance(a: torch.Tensor, b: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Return 1 - cos(a, b) along the last axis."""
    return reduced(1 - F.cosine_similarity(a, b, dim=-1), reduction)


def nt_xent(a: torch.Tensor, b: torch.Tensor, temperature: float = 0.5, reduction: str = "mean") -> torch.Tensor:
    """Return SimCLR's loss of two views (Chen et al. 2020): each row must tell its other view from all other rows."""
    rows = F.normalize(torch.cat((a, b)), dim=1)
    count = rows.shape[0]
    itself = torch.eye(count, dtype=torch.bool, device=rows.device)
    similarities = (rows @ rows.T / temperature).masked_fill(itself, -torch.inf)
    partners = torch.arange(count, device=rows.device).roll(count // 2)
    return F.cross_entropy(similarities, partners, reduction=reduction)


def focal(
    logits: torch.Tensor | float,
    target: torch.Tensor | float,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the focal loss of logits and a target (Lin et al. 2017), either of which may be a number."""
    logits, target = same_shape(logits, target)
    p, entropy = torch.sigmoid(logits), F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    missed = p * (1 - target) + (1 - p) * target
    return reduced((alpha * target + (1 - alpha) * (1 - target)) * missed**gamma * entropy, reduction)


def dice(
    probabilities: torch.Tensor,
    target: torch.Tensor,
    axis: int | tuple[int, ...] | None = None,
    smooth: float = 1e-7,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), summed over all axes but the first, or some."""
    axes = tuple(range(1, probabilities.ndim)) if axis is None else axis
    shared, whole = (probabilities * target).sum(axes), probabilities.sum(axes) + target.sum(axes)
    return reduced(1 - (2 * shared + smooth) / (whole + smooth), reduction)


def gaussian_nll(
    mean: torch.Tensor | float,
    target: torch.Tensor | float,
    variance: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return (log v + (mean - target)^2 / v) / 2, v being at least ``eps`` with the gradient of the variance itself.

    ``F.gaussian_nll_loss`` reads the numbers of the variance, for which it waits for a device.
    """
    squared = torch.as_tensor((mean - target) ** 2)
    variance = torch.as_tensor(variance, dtype=squared.dtype, device=squared.device)
    held = torch.where(variance < eps, eps + (variance - variance.detach()), variance)
    constant = math.log(2 * math.pi) if full else 0.0
    return reduced(0.5 * (held.log() + squared / held + constant), reduction)


def poisson_nll(
    rate: torch.Tensor | float,
    target: torch.Tensor | float,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the loss of counts under a Poisson distribution; a rate, or its logarithm, or a count may be a number."""
    rate, target = same_shape(rate, target)
    return F.poisson_nll_loss(rate, target.to(rate.dtype), log_input, full, eps=eps, reduction=reduction)


def ctc(
    logits: torch.Tensor,
    target: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """Return the loss of all alignments (Graves et al. 2006); the mean is that of each loss by its target's length.

    ``logits`` [batch, time, classes], ``target`` [batch, places], both lengths [batch].
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    scores = F.log_softmax(logits, -1, dtype=wide).transpose(0, 1)
    lengths = input_lengths.long(), target_lengths.long()
    return F.ctc_loss(scores, target.long(), *lengths, blank, reduction, zero_infinity)


def wasserstein(score: torch.Tensor, sign: float = 1.0, reduction: str = "mean") -> torch.Tensor:
    """Return sign * score: the critic's loss (Arjovsky et al. 2017)."""
    return sign * reduced(score, reduction)


def super_loss(
    losses: torch.Tensor, threshold: float | None = None, regularization: float = 1.0, reduction: str = "mean"
) -> torch.Tensor:
    """Return (l - t) s + r (log s)^2 with the confidence s that makes it least (Castells et al. 2020).

    ``threshold`` t: what a sample's loss is compared with, the mean of the batch where there is none; a constant for
    gradients, as s is.
    """
    limit = losses.detach().mean() if threshold is None else threshold
    beyond = (losses.detach() - limit) / regularization
    confidence = -lambert_w(0.5 * beyond.clamp(min=-2 / math.e))  # its logarithm
    return reduced((losses - limit) * confidence.exp() + regularization * confidence**2, reduction)


def lambert_w(y: torch.Tensor) -> torch.Tensor:
    """Return w with w e^w = y on the principal branch, y >= -1/e (Corless et al. 1996): series, then Halley's steps."""
    p = (2 * (math.e * y + 1)).clamp(min=0).sqrt()
    w = torch.where(y < 0, -1 + p - p**2 / 3 + 11 / 72 * p**3, torch.log1p(y.clamp(min=0)))
    for _ in range(6):
        error = w * w.exp() - y
        slope = w.exp() * (w + 1) - (w + 2) * error / (2 * (w + 1)).clamp(min=1e-4)
        w = torch.where(p > 1e-4, w - error / slope, w)
    return w


def mean_of(loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]) -> torch.Tensor:
    """Return a user's loss, which may come as (sum, count) and then is their quotient."""
    return quotient(*pair_of(loss)) if isinstance(loss, tuple) else loss


def uncounted(loss: torch.Tensor) -> torch.Tensor:
    """Return a user's loss that is a mean over rows; raise ValueError where it brings its own count."""
    if isinstance(loss, tuple):
        found = "it returns (sum, count), where it is taken for one number whose count is that of the rows"
        raise ValueError(
            f"{found}: it must return the same in every step, and micro-batches take no gradient by a value"
        )
    return loss


def pair_of(loss: tuple[torch.Tensor, torch.Tensor | float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum and the count of a user's loss; raise ValueError where it is one number."""
    if not isinstance(loss, tuple):
        raise ValueError("it returns one number, but (sum, count) before: it must return the same in every step")
    total, count = loss
    wide = torch.promote_types(total.dtype, torch.float32)
    return total, torch.as_tensor(count, device=total.device).detach().to(wide)


def pair_or_rows(
    loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | float], like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum and the count of a user's loss; one number is the mean over the rows of ``like``."""
    rows = like.shape[0] if like.ndim else 1
    return pair_of(loss if isinstance(loss, tuple) else (loss * rows, rows))


def sum_and_count(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of elements, and how many they are."""
    return pair_of((losses.sum(), losses.numel()))


def pieces_of(loss: torch.Tensor | tuple[torch.Tensor, torch.Tensor | float]) -> torch.Tensor:
    """Return as many zeros as a user's loss has pieces: two for (sum, count), else one."""
    return torch.zeros(2 if isinstance(loss, tuple) else 1)


def kept_count(target: torch.Tensor, ignore_index: int, like: torch.Tensor) -> torch.Tensor:
    """Return how many elements of a target are not left out, in the type of ``like``, or float32 if it is narrower."""
    return (target != ignore_index).sum().to(torch.promote_types(like.dtype, torch.float32))


def quotient(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return a sum by its count: NaN where nothing was counted, with a gradient of zeros."""
    return torch.where(count == 0, torch.nan, total / torch.where(count == 0, 1, count))


def inverse(count: torch.Tensor) -> torch.Tensor:
    """Return one by a count; zero where nothing was counted, since then a sum over it has a gradient of zeros."""
    return torch.where(count == 0, 0.0, 1.0 / count)
