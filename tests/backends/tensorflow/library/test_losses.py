"""Losses beside PyTorch's: values and both derivatives under every reduction, at the places where they bend."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
import torch
import torch.nn.functional as F

from runtime.backends.tensorflow.library import likelihoods
from runtime.backends.tensorflow.library import losses as mine
from runtime.backends.torch.library import losses as torchs
from tests.backends.tensorflow.library.beside import assert_same

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 3))
P, Q = RANDOM.uniform(0.01, 0.99, size=(4, 3)), RANDOM.uniform(size=(4, 3))
MAP, SHARES = RANDOM.normal(size=(2, 3, 5)), RANDOM.uniform(size=(2, 3, 5))
CLASSES, PIXELS = np.array([2, 0, 1, 1]), RANDOM.integers(0, 3, size=(2, 5))
ROUND = np.round(X)  # equal to others, and zero, in places

CASES = {
    "cross_entropy": ("cross_entropy", {}, (X, CLASSES)),
    "cross_entropy-int32": ("cross_entropy", {}, (X, CLASSES.astype(np.int32))),
    "cross_entropy-bytes": ("cross_entropy", {}, (X, CLASSES.astype(np.uint8))),
    "cross_entropy-maps": ("cross_entropy", {}, (MAP, PIXELS)),
    "cross_entropy-axis": ("cross_entropy", {"axis": -1}, (MAP.transpose(0, 2, 1), PIXELS)),
    "cross_entropy-shares": ("cross_entropy", {}, (MAP, SHARES)),
    "cross_entropy-shares-axis": ("cross_entropy", {"axis": 0}, (MAP, SHARES)),
    "cross_entropy-smoothed": ("cross_entropy", {"label_smoothing": 0.1}, (MAP, PIXELS)),
    "cross_entropy-shares-smoothed": ("cross_entropy", {"label_smoothing": 0.1}, (MAP, SHARES)),
    "cross_entropy-one-sample": ("cross_entropy", {"axis": 0}, (X[0], np.array(1))),
    "nll": ("nll", {}, (X, CLASSES)),
    "nll-maps": ("nll", {}, (MAP, PIXELS)),
    "bce_with_logits": ("bce_with_logits", {}, (X, Q)),
    "bce_with_logits-number": ("bce_with_logits", {}, (X, 0.9)),
    "bce_with_logits-far": ("bce_with_logits", {}, (np.array([-800.0, 800.0, 0.0]), np.array([1.0, 0.0, 0.3]))),
    "mse": ("mse", {}, (X, Y)),
    "mse-number": ("mse", {}, (X, 1)),
    "l1": ("l1", {}, (ROUND, np.zeros_like(X))),
    "l1-number": ("l1", {}, (X, -0.5)),
    "huber": ("huber", {"delta": 0.3}, (X, Y)),
    "huber-at-delta": ("huber", {"delta": 1.0}, (ROUND, np.zeros_like(X))),
    "kl_div": ("kl_div", {"temperature": 2.0}, (X, Y)),
    "kl_div-maps": ("kl_div", {}, (MAP, SHARES)),
    "hinge": ("hinge", {}, (ROUND, np.sign(Y))),
    "hinge-number": ("hinge", {}, (X, -1.0)),
    "cosine": ("cosine_distance", {}, (X, Y)),
    "nt_xent": ("nt_xent", {"temperature": 0.3}, (X, Y)),
    "wasserstein": ("wasserstein", {"sign": -1.0}, (X,)),
    "focal": ("focal", {}, (X, Q)),
    "focal-number": ("focal", {"alpha": 0.7, "gamma": 1.5}, (X, 1.0)),
    "focal-plain": ("focal", {"gamma": 0.0}, (np.array([-800.0, 800.0, 0.0]), np.array([1.0, 1.0, 0.3]))),
    "dice": ("dice", {}, (P, Q)),
    "dice-maps": ("dice", {"axis": (2,), "smooth": 1.0}, (SHARES, SHARES[::-1].copy())),
    "gaussian_nll": ("gaussian_nll", {}, (X, Y, P)),
    "gaussian_nll-least": ("gaussian_nll", {"full": True, "eps": 0.5}, (X, Y, P)),
    "gaussian_nll-number": ("gaussian_nll", {}, (X, Y, 0.3)),
    "poisson_nll": ("poisson_nll", {}, (X, 3 * P)),
    "poisson_nll-whole": ("poisson_nll", {"full": True}, (X, PIXELS[:1, :3])),
    "poisson_nll-rate": ("poisson_nll", {"log_input": False, "full": True}, (P, 3 * Q)),
}
"""By their names in both libraries."""


KNOWN = {**vars(mine), **vars(likelihoods)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_values_and_both_gradients_are_pytorchs(name, reduction):
    loss, options, operands = CASES[name]
    options = {**options, "reduction": reduction}
    assert_same(partial(KNOWN[loss], **options), partial(vars(torchs)[loss], **options), *operands)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("swap", [False, True])
def test_triplets_are_pytorchs(swap, reduction):
    options = {"margin": 0.4, "swap": swap, "reduction": reduction}
    assert_same(
        partial(likelihoods.triplet_margin, **options), partial(F.triplet_margin_loss, **options), X, Y, P, second=1e-9
    )


TIMES, TARGETS = np.array([7, 5, 4, 2]), np.array([3, 2, 0, 1])
TEXT = np.array([[1, 1, 2], [2, 1, 0], [1, 1, 1], [3, 0, 0]])
SPOKEN = RANDOM.normal(size=(4, 7, 4))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("blank", [0, 3])
def test_ctc_is_pytorchs(blank, reduction):
    """For a target without classes, one with a class twice, and one without room; PyTorch has no second gradient."""
    text = TEXT if blank == 0 else (TEXT - 1) % 3
    options = {"blank": blank, "reduction": reduction}
    for times, zero in ((TIMES, False), (np.array([2, 5, 4, 0]), True)):
        ours, theirs = (
            partial(each.ctc, **options, zero_infinity=zero, target_lengths=lengths)
            for each, lengths in ((likelihoods, tf.constant(TARGETS)), (torchs, torch.tensor(TARGETS)))
        )
        one, other = derive_first(ours, tf, SPOKEN, text, times), derive_first(theirs, torch, SPOKEN, text, times)
        for each, expected in zip(one, other, strict=True):
            np.testing.assert_allclose(each, expected, rtol=1e-11, atol=1e-12)


def derive_first(loss, framework, x, *rest):
    """Return a loss of three operands and the gradient of the sum of its squares by the first."""
    if framework is torch:
        given = torch.tensor(x, requires_grad=True)
        y = loss(given, *map(torch.tensor, rest))
        return y.detach().numpy(), torch.autograd.grad(y.square().sum(), given)[0].numpy()
    given = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(given)
        y = loss(given, *map(tf.constant, rest))
        total = tf.reduce_sum(y * y)
    return y.numpy(), tape.gradient(total, given).numpy()


def test_what_has_no_alignment_is_infinite_unless_it_is_left_out():
    given = [tf.constant(SPOKEN), tf.constant(TEXT), tf.constant([2, 5, 4, 0]), tf.constant(TARGETS)]
    assert np.isinf(likelihoods.ctc(*given, reduction="none").numpy()).tolist() == [True, False, False, True]
    left = likelihoods.ctc(*given, zero_infinity=True, reduction="none").numpy()
    assert (left == 0).tolist() == [True, False, False, True]


# PyTorch itself adds 1e-12 to the denominator of the second gradient of bce, which is infinite at the ends.
BOUNDED = {
    "tensors": (P, Q, 1e-9),
    "number": (P, 0.25, 1e-9),
    "number-first": (0.25, Q, 1e-9),
    "ends-no": (np.array([0.0, 1.0, 1e-20]), 0.0, None),
    "ends-yes": (np.array([0.0, 1.0, 1e-20]), 1.0, None),
}


@pytest.mark.parametrize("case", BOUNDED.values(), ids=BOUNDED)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_bce_is_bounded_as_pytorchs(case, reduction):
    probabilities, target, second = case
    options = {"reduction": reduction}
    assert_same(partial(mine.bce, **options), partial(torchs.bce, **options), probabilities, target, second=second)


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "mse", "kl_div", "nt_xent", "wasserstein"])
def test_a_sum_adds_up_what_is_reduced(name):
    loss, options, operands = CASES[name]
    elements, total = (vars(mine)[loss](*operands_of(operands), reduction=how, **options) for how in ("none", "sum"))
    assert float(total) == pytest.approx(float(np.sum(elements)), rel=1e-14)


def operands_of(operands):
    """Return operands as tensors."""
    return [tf.constant(each) for each in operands]


def test_a_user_s_loss_may_come_as_sum_and_count():
    assert float(mine.mean_of((tf.constant(6.0), 4))) == 1.5
    assert float(mine.mean_of((tf.constant(6.0), tf.constant(4)))) == 1.5
    assert float(mine.mean_of(tf.constant(6.0))) == 6.0


def test_whole_targets_become_floating():
    assert float(mine.mse(tf.constant([1.0, 2.0]), tf.constant([0, 0], tf.int64))) == 2.5
