"""Losses against their formulas, written out by hand in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from runtime.backends.torch.library import losses

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(4, 3, dtype=torch.float64, generator=GENERATOR)
Y = torch.randn(4, 3, dtype=torch.float64, generator=GENERATOR)
P = torch.rand(4, 3, dtype=torch.float64, generator=GENERATOR)
CLASSES = torch.tensor([2, 0, 1, 1])
LOG = (X.exp() / X.exp().sum(1, keepdim=True)).log()


def by_hand(elements: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what each reduction makes of the elements."""
    return {"mean": elements.sum() / elements.numel(), "sum": elements.sum(), "none": elements}


def assert_reduces(loss, elements: torch.Tensor) -> None:
    """Check a loss under every reduction, the mean being the default."""
    expected = by_hand(elements)
    for reduction, value in expected.items():
        torch.testing.assert_close(loss(reduction=reduction), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss(), expected["mean"], rtol=1e-12, atol=1e-12)


def log_rows(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return log softmax of rows the naive way."""
    powers = (logits / temperature).exp()
    return (powers / powers.sum(1, keepdim=True)).log()


def test_cross_entropy_of_class_numbers():
    assert_reduces(lambda **how: losses.cross_entropy(X, CLASSES, **how), -LOG[range(4), CLASSES])


def test_cross_entropy_of_probabilities():
    target = P / P.sum(1, keepdim=True)
    assert_reduces(lambda **how: losses.cross_entropy(X, target, **how), -(target * LOG).sum(1))


def test_label_smoothing_spreads_a_share_over_all_classes():
    target = 0.9 * functional.one_hot(CLASSES, 3).double() + 0.1 / 3
    assert_reduces(lambda **how: losses.cross_entropy(X, CLASSES, label_smoothing=0.1, **how), -(target * LOG).sum(1))


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_cross_entropy_takes_classes_along_any_axis(axis):
    logits = torch.randn(5, 3, 4, dtype=torch.float64, generator=GENERATOR)
    log = logits.log_softmax(axis)
    target = torch.randint(3, log.select(axis, 0).shape, generator=GENERATOR)
    elements = -log.gather(axis, target.unsqueeze(axis)).squeeze(axis)
    assert_reduces(lambda **how: losses.cross_entropy(logits, target, axis=axis, **how), elements)
    soft = torch.rand(logits.shape, dtype=torch.float64, generator=GENERATOR)
    assert_reduces(lambda **how: losses.cross_entropy(logits, soft, axis=axis, **how), -(soft * log).sum(axis))


def test_cross_entropy_of_one_sample_without_a_batch():
    loss = losses.cross_entropy(X[0], CLASSES[0], axis=0)
    torch.testing.assert_close(loss, -LOG[0, 2], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_class_numbers_may_be_of_any_whole_type(dtype):
    expected = -LOG[range(4), CLASSES].mean()
    for loss in (losses.cross_entropy(X, CLASSES.to(dtype)), losses.nll(LOG, CLASSES.to(dtype))):
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


def test_nll_reduces_minus_the_log_probability_of_the_class():
    assert_reduces(lambda **how: losses.nll(LOG, CLASSES, **how), -LOG[range(4), CLASSES])


LITERALS = {
    "bce": (losses.bce, functional.binary_cross_entropy, P, 0.25),
    "bce_with_logits": (losses.bce_with_logits, functional.binary_cross_entropy_with_logits, X, 1.0),
    "mse": (losses.mse, functional.mse_loss, X, 1),
    "l1": (losses.l1, functional.l1_loss, X, -0.5),
    "huber": (losses.huber, functional.huber_loss, X, 0.0),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", LITERALS.values(), ids=LITERALS)
def test_a_number_stands_for_a_tensor_filled_with_it(case, reduction):
    ours, theirs, x, number = case
    expected = theirs(x, torch.full_like(x, number), reduction=reduction)
    assert torch.equal(ours(x, number, reduction=reduction), expected)
    assert torch.equal(ours(x, torch.full_like(x, number), reduction=reduction), expected)


def test_the_number_may_stand_in_place_of_the_prediction():
    assert torch.equal(losses.bce(0.25, P), functional.binary_cross_entropy(torch.full_like(P, 0.25), P))
    assert torch.equal(losses.mse(0.5, X), functional.mse_loss(torch.full_like(X, 0.5), X))


def test_huber_passes_delta_on():
    distance = (X - 0.5).abs()
    elements = torch.where(distance <= 0.3, distance**2 / 2, 0.3 * (distance - 0.15))
    assert_reduces(lambda **how: losses.huber(X, 0.5, delta=0.3, **how), elements)


def test_kl_div_is_a_mean_over_the_batch_at_a_temperature():
    s, t = log_rows(X, 2.0), log_rows(Y, 2.0)
    rows = (t.exp() * (t - s)).sum(1)
    assert_reduces(lambda **how: losses.kl_div(X, Y, temperature=2.0, **how), rows)


def test_kl_div_of_maps_sums_positions_and_takes_the_mean_over_the_batch():
    student, teacher = (torch.randn(2, 3, 5, dtype=torch.float64, generator=GENERATOR) for _ in range(2))
    s, t = log_rows(student, 1.0), log_rows(teacher, 1.0)
    positions = (t.exp() * (t - s)).sum(1)
    torch.testing.assert_close(losses.kl_div(student, teacher), positions.sum() / 2)
    assert losses.kl_div(student, teacher, reduction="none").shape == (2, 5)


def test_kl_div_bears_a_teacher_that_is_sure():
    sure = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    loss = losses.kl_div(torch.zeros(2, 2), sure)
    assert float(loss) == pytest.approx(math.log(2))


def test_hinge_is_zero_beyond_the_margin():
    score, target = torch.tensor([2.0, 0.5, -3.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, -1.0])
    assert_reduces(lambda **how: losses.hinge(score, target, **how), torch.tensor([0.0, 0.5, 4.0, 1.0]))


def test_hinge_takes_a_number_as_target():
    assert losses.hinge(torch.tensor([2.0, -0.5]), -1.0, reduction="none").tolist() == [3.0, 0.5]


def test_cosine_compares_rows_along_the_last_axis():
    a, b = X.reshape(2, 2, 3), Y.reshape(2, 2, 3)
    lengths = (a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt()
    assert_reduces(lambda **how: losses.cosine_distance(a, b, **how), 1 - (a * b).sum(-1) / lengths)


def test_nt_xent_is_the_formula_of_the_paper():
    rows = torch.cat((X, Y))
    rows = rows / rows.norm(dim=1, keepdim=True)
    elements = []
    for i in range(8):
        terms = {k: math.exp(float(rows[i] @ rows[k]) / 0.3) for k in range(8) if k != i}
        elements.append(-math.log(terms[(i + 4) % 8] / sum(terms.values())))
    expected = torch.tensor(elements, dtype=torch.float64)
    assert_reduces(lambda **how: losses.nt_xent(X, Y, temperature=0.3, **how), expected)


def test_gradients_of_nt_xent_are_finite():
    a = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(losses.nt_xent(a, Y), a)
    assert gradient.isfinite().all()
    assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_wasserstein_is_the_signed_score(sign):
    assert_reduces(lambda **how: losses.wasserstein(X, sign=sign, **how), sign * X)


def test_a_loss_may_come_as_sum_and_count():
    assert losses.mean_of((torch.tensor(6.0), 4)).item() == 1.5
    assert losses.mean_of(torch.tensor(6.0)).item() == 6.0
