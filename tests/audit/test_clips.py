"""Clips over the parameters of several optimizers: a mistake between models, practice within one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from runtime.audit import audit


@pytest.mark.parametrize(("by_shape", "found"), [(True, []), (False, ["clip-scope"])])
def test_one_norm_over_two_optimizers_is_wrong_where_they_step_different_models(by_shape, found):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 8), nn.Linear(8, 1)
    net = nn.Sequential(first, nn.Tanh(), second)
    every = [*net.parameters()]
    parts = [[each for each in every if each.ndim == n] for n in (2, 1)]
    model = net if by_shape else lambda x: second(torch.tanh(first(x)))
    parts = parts if by_shape else [[*first.parameters()], [*second.parameters()]]
    optimizers = [torch.optim.SGD(part, lr=0.1) for part in parts]
    with audit() as audited:
        for x in torch.randn(3, 16, 4):
            for each in optimizers:
                each.zero_grad()
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(every, 1e-3)
            for each in optimizers:
                each.step()
    assert [each.code for each in audited.findings] == found
