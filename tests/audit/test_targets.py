"""Targets that move: regressions both of whose sides depend on the weights that they train."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from runtime.audit import Report, audit


def train(*, detach: bool, steps: int = 3) -> tuple[Report, nn.Module]:
    """Learn values from their own estimates."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with audit() as audited:
        for _ in range(steps):
            target = torch.randn(8, 1) + 0.9 * net(torch.randn(8, 4))
            loss = F.mse_loss(net(torch.randn(8, 4)), target.detach() if detach else target)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return audited.report, net


def codes(report: Report) -> list[str]:
    return [each.code for each in report.findings]


def test_a_target_with_a_gradient_is_asked_about_and_makes_another_step():
    moving, net = train(detach=False, steps=1)
    constant, other = train(detach=True, steps=1)
    assert codes(moving) == ["undetached-target"]
    assert codes(constant) == []
    torch.manual_seed(0)
    by_hand = nn.Linear(4, 1)
    reward, after, before = torch.randn(8, 1), torch.randn(8, 4), torch.randn(8, 4)
    with torch.no_grad():
        error = by_hand(before) - (reward + 0.9 * by_hand(after))
        weight = by_hand.weight
        semi, full = ((2 * error * x).mean(0) for x in (before, before - 0.9 * after))
    torch.testing.assert_close(other.get_parameter("weight").detach(), (weight - 0.1 * semi).detach())
    torch.testing.assert_close(net.get_parameter("weight").detach(), (weight - 0.1 * full).detach())


@pytest.mark.parametrize("distance", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss])
def test_features_of_a_judge_that_the_loss_does_not_train_are_no_target(distance):
    judge, maker = nn.Linear(4, 3), nn.Linear(2, 4)
    opt = torch.optim.SGD(maker.parameters(), 0.1)
    with audit() as audited:
        for _ in range(2):
            loss = distance(judge(maker(torch.randn(8, 2))), judge(torch.randn(8, 4)))
            opt.zero_grad()
            judge.zero_grad()
            loss.backward()
            opt.step()
    assert "undetached-target" not in codes(audited.report)


def test_two_models_that_share_nothing_may_move_towards_each_other():
    one, two = nn.Linear(4, 3), nn.Linear(4, 3)
    opt = torch.optim.SGD([*one.parameters(), *two.parameters()], 0.1)
    with audit() as audited:
        for _ in range(2):
            x = torch.randn(8, 4)
            opt.zero_grad()
            F.mse_loss(one(x), two(x)).backward()
            opt.step()
    assert codes(audited.report) == []
