"""The optimizers of the oracle against PyTorch, and by hand where it has none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.oracle.optimizers import DEFAULTS, RULES, clip_norm, clip_value

CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
}
CASES = [
    *((name, {}) for name in CLASSES),
    *((name, {"weight_decay": 0.1}) for name in CLASSES),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("adam", {"betas": (0.5, 0.9), "eps": 1e-3}),
    ("rmsprop", {"momentum": 0.5, "centered": True, "alpha": 0.9}),
    ("adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("nadam", {"momentum_decay": 0.1}),
]


def steps(name, options, start, gradients):
    """Return the values of a parameter after every step by the oracle's rule."""
    w, slots, found = start, {}, []
    for t, g in enumerate(gradients, 1):
        w, slots = RULES[name](w, g, slots, {**DEFAULTS[name], **options}, t)
        found.append(w)
    return np.array(found)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_rule_is_that_of_pytorch(name, options):
    generator = np.random.default_rng(1)
    start, gradients = generator.normal(size=5), generator.normal(size=(6, 5))
    w = torch.tensor(start, requires_grad=True)
    lr, expected = DEFAULTS[name]["lr"], []
    optimizer = CLASSES[name]([w], lr=lr, foreach=False, **options)
    for g in gradients:
        w.grad = torch.tensor(g)
        optimizer.step()
        expected.append(w.detach().numpy().copy())
    tolerance = 1e-7 if name == "nadam" else 1e-13  # PyTorch keeps one factor of NAdam in float32
    np.testing.assert_allclose(steps(name, options, start, gradients), expected, rtol=tolerance, atol=tolerance)


def test_lion_moves_by_the_sign_of_the_interpolated_momentum():
    # By hand, betas 0.5 and 0.5: m = 0, 1, then sign(0.5 * 1 + 0.5 * -4) < 0.
    found = steps("lion", {"lr": 0.1, "betas": (0.5, 0.5)}, np.array([1.0]), [np.array([2.0]), np.array([-4.0])])
    np.testing.assert_allclose(found[:, 0], [0.9, 1.0])


def test_momentum_with_the_rate_inside_is_that_of_keras():
    # By hand: v = -0.1 * 1, w = 0.9; then v = 0.5 * -0.1 - 0.2 * 1 with the rate doubled, w = 0.9 - 0.25.
    options = {**DEFAULTS["sgd"], "momentum": 0.5, "momentum_form": "lr_inside"}
    one, slots = RULES["sgd"](np.array([1.0]), np.array([1.0]), {}, {**options, "lr": 0.1}, 1)
    two, _ = RULES["sgd"](one, np.array([1.0]), slots, {**options, "lr": 0.2}, 2)
    np.testing.assert_allclose([one[0], two[0]], [0.9, 0.65])


def test_clips_are_those_of_pytorch():
    generator = np.random.default_rng(2)
    gradients = {"a": generator.normal(size=(2, 3)), "b": generator.normal(size=4)}
    leaves = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in gradients.values()]
    for norm in (0.5, 100.0):
        for leaf, g in zip(leaves, gradients.values(), strict=True):
            leaf.grad = torch.tensor(g)
        torch.nn.utils.clip_grad_norm_(leaves, norm)
        for leaf, g in zip(leaves, clip_norm(gradients, norm, 1e-6).values(), strict=True):
            np.testing.assert_allclose(g, leaf.grad.numpy(), rtol=1e-14)
    assert np.abs(clip_value(gradients, 0.1)["a"]).max() == 0.1
