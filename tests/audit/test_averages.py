"""Averages that the program keeps itself, in dictionaries and lists: when they are taken, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn

from runtime.audit import Report, audit

Shadow = dict[str, torch.Tensor]
STEPS = 3


def functional(shadow: Shadow, net: nn.Module) -> None:
    for name, weight in net.named_parameters():
        shadow[name] = 0.9 * shadow[name] + 0.1 * weight.detach()


def in_place(shadow: Shadow, net: nn.Module) -> None:
    for name, weight in net.named_parameters():
        shadow[name].mul_(0.9).add_(weight.detach(), alpha=0.1)


def difference(shadow: Shadow, net: nn.Module) -> None:
    with torch.no_grad():
        for name, weight in net.named_parameters():
            step = shadow[name] - weight
            step.mul_(0.1)
            shadow[name].sub_(step)


def state(shadow: Shadow, net: nn.Module) -> None:
    for name, weight in net.state_dict().items():
        shadow[name].copy_(torch.lerp(shadow[name], weight, 0.1))


def augmented(shadow: Shadow, net: nn.Module) -> None:
    for name, weight in net.named_parameters():
        shadow[name] *= 0.9
        shadow[name] += weight.detach() * 0.1


def measure(shadow: Shadow, net: nn.Module) -> None:
    """How far the weights have moved since the last call: no average, though it mixes old and new ones."""
    for name, weight in net.named_parameters():
        (weight.detach() - shadow[name]).norm().item()
        shadow[name] = weight.detach().clone()


def anchor(shadow: Shadow, net: nn.Module) -> None:
    """Take a step towards the first weights, by hand."""
    for name, weight in net.named_parameters():
        weight.data -= 0.01 * (weight.data - shadow[name])


STYLES = (functional, in_place, difference, state, augmented)


def train(
    follow: Callable[[Shadow, nn.Module], None], where: str, *, batches: int = 1
) -> tuple[Report, Mapping[str, torch.Tensor]]:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with audit() as audited:
        shadow = {name: weight.clone().detach() for name, weight in net.named_parameters()}
        for _ in range(STEPS):
            opt.zero_grad()
            for _ in range(batches):
                net(torch.randn(8, 4)).square().mean().backward()
                if where == "batch":
                    follow(shadow, net)
            if where == "before":
                follow(shadow, net)
            opt.step()
            if where == "after":
                follow(shadow, net)
    return audited.report, shadow


def shown(report: Report) -> list[tuple[str, int]]:
    return [(each.code, each.times) for each in report.findings]


@pytest.mark.parametrize("follow", STYLES)
def test_an_average_before_the_update_lags(follow: Callable[[Shadow, nn.Module], None]) -> None:
    report, _ = train(follow, "before")
    assert shown(report) == [("ema-order", STEPS)]
    assert "an average of net moves towards net before net's update" in str(report)


@pytest.mark.parametrize("follow", STYLES)
def test_an_average_after_the_update_is_sound(follow: Callable[[Shadow, nn.Module], None]) -> None:
    report, shadow = train(follow, "after", batches=2)
    assert shown(report) == []
    torch.manual_seed(0)
    net, slow = nn.Linear(4, 2), nn.Linear(4, 2)
    slow.load_state_dict(net.state_dict())
    torch.manual_seed(0)
    nn.Linear(4, 2)  # the same random numbers
    for _ in range(STEPS):
        net.zero_grad()
        for _ in range(2):
            net(torch.randn(8, 4)).square().mean().backward()
        with torch.no_grad():
            for mine, its in zip(slow.parameters(), net.parameters(), strict=True):
                assert its.grad is not None
                its -= 0.1 * its.grad
                mine.lerp_(its, 0.1)
    for name, value in slow.named_parameters():
        torch.testing.assert_close(shadow[name], value.detach())


@pytest.mark.parametrize("follow", STYLES)
def test_an_average_of_every_micro_batch_is_on_the_wrong_clock(follow: Callable[[Shadow, nn.Module], None]) -> None:
    report, _ = train(follow, "batch", batches=2)
    assert {each.code for each in report.findings} == {"ema-clock"}


@pytest.mark.parametrize("follow", [measure, anchor])
def test_what_compares_with_earlier_weights_is_no_average(follow: Callable[[Shadow, nn.Module], None]) -> None:
    for where in ("before", "after", "batch"):
        report, _ = train(follow, where, batches=2)
        assert shown(report) == []


def test_what_another_loss_leaves_in_a_gradient_makes_no_micro_batch_of_an_average():
    torch.manual_seed(0)
    actor, critic, target = (nn.Linear(4, 4) for _ in range(3))
    target.requires_grad_(False)
    opt_actor, opt_critic = (torch.optim.SGD(each.parameters(), 0.1) for each in (actor, critic))
    with audit() as report:
        for _ in range(STEPS):
            x = torch.randn(8, 4)
            critic(x).square().mean().backward()  # nothing zeroes the gradients of the critic
            opt_critic.step()
            opt_actor.zero_grad()
            critic(actor(x)).mean().backward()
            opt_actor.step()
            for mine, its in zip(target.parameters(), critic.parameters(), strict=True):
                mine.data.lerp_(its.data, 0.1)
    assert {each.code for each in report.report.of("error", "warning")} == {"leftover-grad"}
