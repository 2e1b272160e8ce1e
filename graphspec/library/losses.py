"""Losses.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from graphspec.python.values import Fields, Number, Operand, Value, apply


def cross_entropy(
    logits: Operand,
    target: Operand,
    *,
    axis: int | None = None,
    label_smoothing: Number | None = None,
    ignore_index: int | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `cross_entropy`: -log softmax(logits) at the target class, or against target probabilities.

    axis: the axis of the classes (default 1)
    label_smoothing: probability spread evenly over all classes (default 0)
    ignore_index: a class index that is left out of sum and count
    """
    return apply(
        "cross_entropy",
        "loss",
        [logits, target],
        {"axis": axis, "label_smoothing": label_smoothing, "ignore_index": ignore_index, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def nll(
    log_probabilities: Operand,
    target: Operand,
    *,
    ignore_index: int | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `nll`: minus the log-probability of the target class.

    ignore_index: a class index that is left out of sum and count
    """
    return apply(
        "nll",
        "loss",
        [log_probabilities, target],
        {"ignore_index": ignore_index, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def bce(
    probabilities: Operand,
    target: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `bce`: binary cross-entropy of probabilities."""
    return apply(
        "bce", "loss", [probabilities, target], {"reduction": reduction}, {**fields, "weight": weight, "lazy": lazy}
    )


def bce_with_logits(
    logits: Operand,
    target: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `bce_with_logits`: binary cross-entropy of logits."""
    return apply(
        "bce_with_logits",
        "loss",
        [logits, target],
        {"reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def mse(
    prediction: Operand,
    target: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `mse`: squared difference."""
    return apply(
        "mse", "loss", [prediction, target], {"reduction": reduction}, {**fields, "weight": weight, "lazy": lazy}
    )


def l1(
    prediction: Operand,
    target: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `l1`: absolute difference."""
    return apply(
        "l1", "loss", [prediction, target], {"reduction": reduction}, {**fields, "weight": weight, "lazy": lazy}
    )


def huber(
    prediction: Operand,
    target: Operand,
    *,
    delta: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `huber`: half the squared difference up to delta, linear beyond.

    delta: where the square becomes a line (default 1)
    """
    return apply(
        "huber",
        "loss",
        [prediction, target],
        {"delta": delta, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def kl_div(
    student: Operand,
    teacher: Operand,
    *,
    temperature: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `kl_div`: KL(teacher || student) of two sets of logits, mean over the batch.

    temperature: divisor of both logits (default 1)
    """
    return apply(
        "kl_div",
        "loss",
        [student, teacher],
        {"temperature": temperature, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def hinge(
    score: Operand,
    target: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `hinge`: max(0, 1 - target * score) with targets -1 and 1."""
    return apply("hinge", "loss", [score, target], {"reduction": reduction}, {**fields, "weight": weight, "lazy": lazy})


def cosine(
    a: Operand,
    b: Operand,
    *,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `cosine`: 1 - cosine similarity of rows."""
    return apply("cosine", "loss", [a, b], {"reduction": reduction}, {**fields, "weight": weight, "lazy": lazy})


def nt_xent(
    a: Operand,
    b: Operand,
    *,
    temperature: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `nt_xent`: SimCLR's contrastive loss of two views.

    temperature: divisor of the similarities (default 0.5)
    """
    return apply(
        "nt_xent",
        "loss",
        [a, b],
        {"temperature": temperature, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def focal(
    logits: Operand,
    target: Operand,
    *,
    alpha: Number | None = None,
    gamma: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `focal`: binary cross-entropy of logits, less where they are right already.

    alpha: weight of the target 1 (default 0.25)
    gamma: how much less what is right counts (default 2)
    """
    return apply(
        "focal",
        "loss",
        [logits, target],
        {"alpha": alpha, "gamma": gamma, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def dice(
    probabilities: Operand,
    target: Operand,
    *,
    axis: int | Sequence[int] | None = None,
    smooth: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `dice`: 1 - twice the overlap of probabilities and target, divided by the sum of both.

    axis: the axes to sum over (default: all but the first)
    smooth: added above and below the bar (default 1e-07)
    """
    return apply(
        "dice",
        "loss",
        [probabilities, target],
        {"axis": axis, "smooth": smooth, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def gaussian_nll(
    mean: Operand,
    target: Operand,
    variance: Operand,
    *,
    full: bool | None = None,
    eps: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `gaussian_nll`: minus the log-density of the target under a normal distribution.

    full: whether the constant log(2 pi) / 2 is added (default False)
    eps: the least variance (default 1e-06)
    """
    return apply(
        "gaussian_nll",
        "loss",
        [mean, target, variance],
        {"full": full, "eps": eps, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def poisson_nll(
    rate: Operand,
    target: Operand,
    *,
    log_input: bool | None = None,
    full: bool | None = None,
    eps: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `poisson_nll`: minus the log-probability of a count under a Poisson distribution.

    log_input: whether the logarithm of the rate is given (default True)
    full: whether Stirling's estimate of log(target!) is added (default False)
    eps: added to a rate before its logarithm (default 1e-08)
    """
    return apply(
        "poisson_nll",
        "loss",
        [rate, target],
        {"log_input": log_input, "full": full, "eps": eps, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def triplet_margin(
    anchor: Operand,
    positive: Operand,
    negative: Operand,
    *,
    margin: Number | None = None,
    swap: bool | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `triplet_margin`: how much nearer to the anchor than margin beyond the positive the negative is.

    margin: how much farther the negative should be (default 1)
    swap: whether the negative's distance is the lesser of two (default False)
    """
    return apply(
        "triplet_margin",
        "loss",
        [anchor, positive, negative],
        {"margin": margin, "swap": swap, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def ctc(
    logits: Operand,
    target: Operand,
    input_lengths: Operand,
    target_lengths: Operand,
    *,
    blank: int | None = None,
    zero_infinity: bool | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `ctc`: minus the log-probability of all alignments of a sequence of classes.

    blank: the class between two classes, which is none itself (default 0)
    zero_infinity: whether what has no alignment is left out (default False)
    """
    return apply(
        "ctc",
        "loss",
        [logits, target, input_lengths, target_lengths],
        {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def wasserstein(
    score: Operand,
    *,
    sign: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `wasserstein`: sign times the mean score.

    sign: 1 or -1 (default 1)
    """
    return apply(
        "wasserstein",
        "loss",
        [score],
        {"sign": sign, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )


def super_loss(
    losses: Operand,
    *,
    threshold: Number | None = None,
    regularization: Number | None = None,
    reduction: Literal["mean", "sum", "none"] | None = None,
    weight: Number | None = None,
    lazy: Literal["scale", "none"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `super_loss`: per-sample losses, weighted by confidence.

    threshold: threshold of a loss (default: the mean of the batch)
    regularization: how slowly the weights change (default 1)
    """
    return apply(
        "super_loss",
        "loss",
        [losses],
        {"threshold": threshold, "regularization": regularization, "reduction": reduction},
        {**fields, "weight": weight, "lazy": lazy},
    )
