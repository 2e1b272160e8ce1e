"""Losses beside PyTorch's: values and both derivatives under every reduction, at the places where they bend."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

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
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_values_and_both_gradients_are_pytorchs(name, reduction):
    loss, options, operands = CASES[name]
    options = {**options, "reduction": reduction}
    assert_same(partial(vars(mine)[loss], **options), partial(vars(torchs)[loss], **options), *operands)


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
