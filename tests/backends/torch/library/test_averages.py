"""Averages and transforms of gradients against published trajectories and torch."""

from __future__ import annotations

import pytest
import torch

from runtime.backends.torch.library.averages import blend, blend_buffers, copy_into
from runtime.backends.torch.library.gradients import add_sets, clip_norm, clip_value, lerp_sets, mul_sets


def test_an_average_from_initial_weights_follows_the_published_trajectory() -> None:
    average, weight = [torch.zeros(1, dtype=torch.float64)], [torch.zeros(1, dtype=torch.float64)]
    seen = []
    for step in range(1, 7):
        weight[0].fill_(step)
        blend(average, weight, 0.9)
        seen.append(average[0].item())
    assert seen == pytest.approx([0.1, 0.29, 0.561, 0.9049, 1.31441, 1.782969], abs=1e-12)


def test_integer_buffers_are_copied_and_floating_ones_averaged() -> None:
    target = [torch.tensor([1.0]), torch.tensor(3)]
    blend_buffers(target, [torch.tensor([3.0]), torch.tensor(9)], 0.5)
    assert target[0].item() == 2.0
    assert target[1].item() == 9


def test_copies_leave_the_source_alone_and_share_nothing() -> None:
    source, target = [torch.ones(2)], [torch.zeros(2)]
    copy_into(target, source)
    target[0].add_(1)
    assert source[0].tolist() == [1.0, 1.0]


def test_a_model_without_tensors_is_averaged_and_copied_without_error() -> None:
    blend([], [], 0.9)
    copy_into([], [])


@pytest.mark.parametrize("scale", [0.01, 10.0])
def test_clip_norm_with_torchs_eps_equals_torch(scale: float) -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(4, 3) * scale, torch.randn(5) * scale]
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    for clipped, parameter in zip(clip_norm(gradients, 1.0, eps=1e-6), parameters, strict=True):
        assert torch.equal(clipped, parameter.grad)


def test_clip_norm_meets_the_published_vectors() -> None:
    clipped = clip_norm([torch.tensor([3.0]), torch.tensor([4.0])], 2.0)
    assert [round(g.item(), 6) for g in clipped] == [1.2, 1.6]
    pair = clip_norm([torch.tensor([100.0, 100.0])], 1.0)[0]
    assert pair.tolist() == pytest.approx([0.70710678, 0.70710678])
    assert clip_norm([torch.zeros(3)], 1.0)[0].tolist() == [0.0, 0.0, 0.0]


def test_clipping_leaves_the_given_gradients_as_they_were() -> None:
    gradient = torch.tensor([3.0, -4.0])
    assert clip_value([gradient], 1.0)[0].tolist() == [1.0, -1.0]
    clip_norm([gradient], 1.0)
    assert gradient.tolist() == [3.0, -4.0]


def test_arithmetic_on_gradient_sets_is_element_by_element() -> None:
    first, second = (torch.tensor([1.0, 2.0]), torch.tensor([3.0])), (torch.tensor([10.0, 20.0]), torch.tensor([30.0]))
    assert [g.tolist() for g in add_sets(first, second, second)] == [[21.0, 42.0], [63.0]]
    assert [g.tolist() for g in mul_sets(first, second, factors=(2,))] == [[20.0, 80.0], [180.0]]
    assert [g.tolist() for g in lerp_sets(first, second, factors=(0.5,))] == [[5.5, 11.0], [16.5]]
    assert [g.tolist() for g in lerp_sets(first, second, torch.tensor(1.0))] == [[10.0, 20.0], [30.0]]
