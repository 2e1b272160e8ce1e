"""Fused kernels look at raw memory: gradients of any layout, and parameters that no fused kernel may step."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.backends.torch.library.kernels import has_fused, match_layout
from runtime.backends.torch.library.optimizers import SGD, Adagrad, Adam, AdamW, Lion, Optimizer, Wrapped

RULES = {
    "sgd": (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (Adam, torch.optim.Adam, {"lr": 0.01}),
    "adamw": (AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adagrad": (Adagrad, torch.optim.Adagrad, {"lr": 0.01}),
}
Loss = Callable[[nn.Module], torch.Tensor]


def make_convolution() -> tuple[nn.Module, Loss]:
    """Return a layer whose weight gradient has its channels last, because its input has."""
    image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    return nn.Conv2d(3, 8, 3), lambda net: net(image).square().mean()


def make_channels_last() -> tuple[nn.Module, Loss]:
    """Return a layer whose weight has its channels last, and its gradient not."""
    net = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    image = torch.randn(2, 3, 8, 8)
    return net, lambda net: (net.weight.contiguous() * image[:, None, :, :3, :3]).sum() + net.bias.square().sum()


def make_sum() -> tuple[nn.Module, Loss]:
    """Return weights whose gradient is one number, expanded."""
    return nn.ParameterList([torch.randn(6)]), lambda net: net[0].sum()


def step_both(net: nn.Module, loss: Loss, rule: str) -> tuple[nn.Module, nn.Module]:
    """Take five steps by our fused optimizer and by torch's after ``backward``."""
    make, reference, options = RULES[rule]
    theirs = copy.deepcopy(net)
    ours = make(net.parameters(), fused=True, **options)
    other = reference(theirs.parameters(), fused=True, **options)
    for _ in range(5):
        ours.apply(torch.autograd.grad(loss(net), ours.parameters))
        other.zero_grad()
        loss(theirs).backward()
        other.step()
    return net, theirs


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("make", [make_convolution, make_channels_last, make_sum])
def test_gradients_of_any_layout_step_as_torch_does_after_backward(
    make: Callable[[], tuple[nn.Module, Loss]], rule: str
) -> None:
    torch.manual_seed(0)
    net, loss = make()
    gradients = torch.autograd.grad(loss(net), list(net.parameters()))
    assert any(g.stride() != p.stride() for g, p in zip(gradients, net.parameters(), strict=True))
    for mine, other in zip(*(each.parameters() for each in step_both(net, loss, rule)), strict=True):
        assert torch.equal(mine, other)


def test_a_gradient_that_lies_like_its_parameter_is_not_copied() -> None:
    gradient = torch.ones(3, 4)
    assert match_layout([torch.zeros(3, 4)], [gradient])[0] is gradient


def test_a_gradient_too_few_is_an_error() -> None:
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match="shorter"):
        Adam(weights, lr=0.1).apply([torch.ones(2)])


@pytest.mark.parametrize(
    "parameters",
    [
        [],
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [torch.zeros(2, dtype=torch.complex64)],
        [torch.zeros(4, 3)[:, :2]],
        [torch.zeros(1).expand(3)],
        [torch.zeros(2, device="meta")],
    ],
)
def test_a_fused_kernel_steps_parameters_of_one_type_and_device_without_gaps_only(parameters: list) -> None:
    assert not has_fused(parameters, "_fused_adam_")
    assert has_fused([torch.zeros(4, 3).T, torch.zeros(2)], "_fused_adam_")


def test_a_rule_without_a_kernel_of_its_own_is_never_fused() -> None:
    assert not has_fused([torch.zeros(2)], "")
    assert not Lion([nn.Parameter(torch.ones(2))], lr=0.1).fused


@pytest.mark.parametrize("rule", RULES)
def test_parameters_of_several_types_step_as_torch_does(rule: str) -> None:
    make, reference, options = RULES[rule]
    ours, theirs = ([nn.Parameter(torch.ones(3, dtype=d)) for d in (torch.float32, torch.float64)] for _ in range(2))
    optimizer, other = make(ours, **options), reference(theirs, foreach=True, **options)
    for number in range(5):
        optimizer.apply([torch.full_like(p, number - 1.5) for p in ours])
        for parameter in theirs:
            parameter.grad = torch.full_like(parameter, number - 1.5)
        other.step()
    assert all(torch.equal(mine, yours) for mine, yours in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_complex_parameters_step_as_torch_does(rule: str) -> None:
    make, reference, options = RULES[rule]
    options = options | ({"initial_accumulator_value": 0.5} if rule == "adagrad" else {})
    ours, theirs = (nn.Parameter(torch.tensor([1 + 2j, 3 - 1j])) for _ in range(2))
    optimizer, other = make([ours], **options), reference([theirs], foreach=True, **options)
    for number in range(5):
        optimizer.apply([torch.tensor([0.3 + 1j * number, 2j])])
        theirs.grad = torch.tensor([0.3 + 1j * number, 2j])
        other.step()
    assert torch.equal(ours, theirs)


def test_fused_asked_for_where_it_cannot_be_is_an_error() -> None:
    mixed = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, dtype=torch.float64))]
    with pytest.raises(ValueError, match="no kernel here can step all parameters"):
        Adam(mixed, lr=0.1, fused=True)


@pytest.mark.parametrize("rule", [torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.NAdam])
def test_a_wrapped_optimizer_shows_its_slots_by_parameter(rule: type[torch.optim.Optimizer]) -> None:
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    optimizer: Optimizer = Wrapped(weights, rule, lr=0.01)
    assert optimizer.slots == {}
    optimizer.apply([torch.ones(2), torch.ones(3)])
    assert "step" in optimizer.slots
    for name, values in optimizer.slots.items():
        assert [value is optimizer.state[p][name] for p, value in zip(weights, values, strict=True)] == [True, True]
