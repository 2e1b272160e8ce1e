"""Optimizers that compute their gradients by a closure: nothing is left in them from one evaluation to the next."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from runtime.audit import audit


def find(*, zero: str, micro: int = 1, rule: Any = torch.optim.LBFGS) -> list[tuple[str, int]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer: Any = rule(net.parameters(), lr=0.1)
    x = torch.randn(8, 3)

    def closure() -> torch.Tensor:
        if zero == "in the closure":
            optimizer.zero_grad()
        losses = [net(part).square().mean() / micro for part in x.chunk(micro)]
        for each in losses:
            each.backward()
        return torch.stack(losses).sum().detach()

    with audit() as report:
        for _ in range(3):
            if zero == "before the step":
                optimizer.zero_grad()
            optimizer.step(closure)
    return [(each.code, each.times) for each in report.findings]


@pytest.mark.parametrize("rule", [torch.optim.LBFGS, torch.optim.Adam])
@pytest.mark.parametrize("micro", [1, 2])
def test_a_closure_that_zeroes_its_gradients_is_sound(rule, micro):
    assert find(zero="in the closure", micro=micro, rule=rule) == []


def test_gradients_that_no_one_zeroes_are_left_over():
    assert find(zero="") == [("leftover-grad", 3)]
    assert find(zero="", rule=torch.optim.SGD) == [("leftover-grad", 2)]


def test_gradients_that_are_zeroed_only_before_several_evaluations_are_left_over():
    assert find(zero="before the step") == [("leftover-grad", 3)]
    assert find(zero="before the step", rule=torch.optim.SGD) == []


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_is_looked_into_as_other_code_is(by_name):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        x = torch.randn(8, 3, requires_grad=True)
        (slope,) = torch.autograd.grad(net(x).sum(), x)
        loss = net(x).mean() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        return loss.detach()

    with audit() as report:
        for _ in range(3):
            if by_name:
                optimizer.step(closure=closure)
            else:
                optimizer.step(closure)
    assert [(each.code, each.times) for each in report.findings] == [("dead-term", 3)]
