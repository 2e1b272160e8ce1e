"""A detached term of a loss is dead; a detached target is not, though with one row of data both are one number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from runtime.audit import audit

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def find_codes(loss: Loss) -> list[str]:
    torch.manual_seed(0)
    critic, actor = nn.Linear(3, 1), nn.Linear(3, 1)
    opt = torch.optim.SGD([*critic.parameters(), *actor.parameters()], 0.1)
    with audit() as report:
        for _ in range(2):
            opt.zero_grad()
            loss(critic(torch.randn(1, 3)), actor(torch.randn(1, 3))).sum().backward()
            opt.step()
    return [each.code for each in report.findings if each.code == "dead-term"]


@pytest.mark.parametrize(
    "loss",
    [
        lambda value, other: 0.5 * (0.9 * other.detach() + 1 - value).pow(2) + other,
        lambda value, other: (value - other.detach()) ** 2 + other.square(),
        lambda value, other: (other.detach() - value).abs() + other,
        lambda value, other: (value - value.detach()).exp() + other,
        lambda value, other: other * (value - value.detach()),
    ],
    ids=["step of TD", "square", "distance", "ratio", "factor"],
)
def test_a_target_of_one_row_is_no_dead_term(loss: Loss) -> None:
    assert find_codes(loss) == []


@pytest.mark.parametrize(
    "loss",
    [
        lambda value, other: value + other + 0.1 * other.detach(),
        lambda value, other: -(value + other - other.detach()).mean() * 2 / 4,
        lambda value, other: torch.stack([value - other.detach(), other]).sum(),
        lambda value, other: (value.mean() + other.detach().square().mean()) * torch.tensor(0.5) + other,
    ],
    ids=["weighted", "scaled", "stacked", "times a constant"],
)
def test_a_detached_term_is_dead(loss: Loss) -> None:
    assert find_codes(loss) == ["dead-term"]
