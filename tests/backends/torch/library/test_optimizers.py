"""Optimizers against torch.optim itself, bit for bit, and against published numbers."""

from __future__ import annotations

import pytest
import torch

from runtime.backends.torch.library.kernels import count_up
from runtime.backends.torch.library.optimizers import SGD, Adagrad, Adam, AdamW, Lion, Optimizer, Wrapped
from runtime.backends.torch.library.schedules import (
    constant,
    cosine,
    exponential,
    linear,
    polynomial,
    step_decay,
    warmup,
)

RULES = {
    "sgd": (SGD, torch.optim.SGD, {"lr": 0.1}),
    "sgd-momentum": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "sgd-nesterov": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd-dampening": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    "adam": (Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.5, 0.99), "weight_decay": 0.01, "eps": 1e-4}),
    "adamw": (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adagrad": (Adagrad, torch.optim.Adagrad, {"lr": 0.01, "weight_decay": 0.1, "lr_decay": 0.01}),
}


def make_net() -> torch.nn.Module:
    """Return a small network, the same each time."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).double()


def run_both(ours: torch.nn.Module, optimizer: Optimizer, theirs: torch.nn.Module, reference: torch.optim.Optimizer):
    """Take twenty steps with each on the same data."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        x = torch.randn(5, 8, generator=generator, dtype=torch.float64)
        optimizer.apply(torch.autograd.grad(ours(x).square().mean(), list(ours.parameters())))
        reference.zero_grad()
        theirs(x).square().mean().backward()
        reference.step()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_twenty_steps_equal_torch_bit_for_bit(rule: str, fused: bool) -> None:
    make, reference, options = RULES[rule]
    ours, theirs = make_net(), make_net()
    kernel = {"fused": True} if fused else {"foreach": True}
    run_both(
        ours,
        make(ours.parameters(), fused=fused, **options),
        theirs,
        reference(theirs.parameters(), **options, **kernel),
    )
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("rule", [torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam])
def test_wrapped_rules_equal_torch_and_leave_no_grad(rule: type[torch.optim.Optimizer]) -> None:
    ours, theirs = make_net(), make_net()
    run_both(ours, Wrapped(ours.parameters(), rule, lr=0.01), theirs, rule(theirs.parameters(), lr=0.01))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
        assert mine.grad is None


def test_a_wrapped_step_that_raises_gives_the_parameters_their_grad_back() -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: None = None) -> None:
            raise ValueError("broken")

    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.full((2,), 7.0)
    with pytest.raises(ValueError, match="broken"):
        Wrapped([weight], Broken, lr=0.1).apply([torch.ones(2)])
    assert weight.grad.tolist() == [7.0, 7.0]


@pytest.mark.parametrize(("form", "expected"), [("lr_outside", -1.15), ("lr_inside", -1.6)])
def test_the_two_forms_of_momentum_differ_as_published_when_the_rate_changes(form: str, expected: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SGD([weight], lr=lambda n: 1.0 if n == 0 else 0.1, momentum=0.5, momentum_form=form)
    for _ in range(2):
        optimizer.apply([torch.ones(1, dtype=torch.float64)])
    assert weight.item() == pytest.approx(expected, abs=1e-12)


def test_lion_follows_its_paper() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = Lion([weight], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    value, momentum = torch.tensor([1.0, -2.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for gradient in (torch.tensor([3.0, -1.0]), torch.tensor([-0.1, 5.0])):
        gradient = gradient.double()
        optimizer.apply([gradient])
        value = value - 0.1 * (torch.sign(0.9 * momentum + 0.1 * gradient) + 0.5 * value)
        momentum = 0.99 * momentum + 0.01 * gradient
    assert torch.allclose(weight, value, rtol=0, atol=1e-14)


@pytest.mark.parametrize("fused", [True, False])
def test_every_apply_bumps_the_version_counter_of_the_parameters(fused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    before = weight._version
    Adam([weight], lr=0.1, fused=fused).apply([torch.ones(3)])
    assert weight._version > before


@pytest.mark.parametrize("places", [(0, 1, 2), (0, 2), (1,)])
def test_every_count_that_is_there_grows_by_one(places: tuple[int, ...]) -> None:
    counts = list(torch.zeros(3).unbind())
    count_up([counts[at] for at in places])
    assert [each.item() for each in counts] == [float(at in places) for at in range(3)]
    counts[0] = torch.tensor(5.0)  # as from a checkpoint that was read into other tensors
    count_up(counts)
    assert [each.item() for each in counts] == [6.0, 1.0 + (1 in places), 1.0 + (2 in places)]


def test_a_missing_gradient_is_named_and_nothing_is_written() -> None:
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))]
    with pytest.raises(RuntimeError, match="parameter 1 has no gradient"):
        Adam(weights, lr=0.1).apply([torch.ones(2), None])
    assert weights[0].tolist() == [1.0, 1.0]


def test_schedules_meet_their_formulas_at_the_start_in_the_middle_and_after_the_end() -> None:
    curves = {
        "constant": (constant(2.0), (2.0, 2.0, 2.0)),
        "linear": (linear(1.0, 0.0, 10), (1.0, 0.5, 0.0)),
        "cosine": (cosine(1.0, 0.0, 10), (1.0, 0.5, 0.0)),
        "polynomial": (polynomial(1.0, 0.0, 10, 2), (1.0, 0.25, 0.0)),
        "exponential": (exponential(1.0, 0.5, 5), (1.0, 0.5, 0.0625)),
        "step": (step_decay(1.0, 0.1, 5), (1.0, 0.1, 1e-4)),
        "warmup": (warmup(0.0, 1.0, 10), (0.0, 0.5, 1.0)),
    }
    for name, (curve, expected) in curves.items():
        assert [curve(n) for n in (0, 5, 20)] == pytest.approx(expected), name


def test_a_scheduled_rate_counts_applied_updates_from_zero() -> None:
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SGD([weight], lr=linear(1.0, 0.0, 4))
    for _ in range(3):
        optimizer.apply([torch.ones(1, dtype=torch.float64)])
    assert weight.item() == pytest.approx(-(1.0 + 0.75 + 0.5))
