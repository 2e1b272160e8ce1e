"""Modes around evaluations: who stays in eval mode, and whose statistics an evaluation moves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.checkpoint import checkpoint

from runtime.audit import Report, audit
from runtime.audit.findings.catalogue import level_of
from runtime.audit.trace import Write

STEPS = 3
Between = Callable[[nn.Module, torch.Tensor], Any]
Loss = Callable[[nn.Module, torch.Tensor, Any], torch.Tensor]


def plainly(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
    return net(x).square().mean()


def train(between: Between, loss: Loss = plainly, *, audited: bool = True) -> tuple[Report | None, nn.Module]:
    """Train a model with batch norm and dropout; call a function after each step, whose result the next loss gets."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 4))
    opt = torch.optim.SGD(net.parameters(), 0.1)
    batches, held_out = torch.randn(STEPS, 8, 4), torch.randn(8, 4) + 5
    given = None
    with audit() if audited else nullcontext() as report:
        for batch in batches:
            opt.zero_grad()
            loss(net, batch, given).backward()
            opt.step()
            given = between(net, held_out)
    return report.report if report is not None else None, net


def shown(report: Report | None) -> list[tuple[str, int]]:
    assert report is not None
    return [(each.code, each.times) for each in report.findings]


def nothing(net: nn.Module, x: torch.Tensor) -> None:
    pass


@torch.no_grad()
def in_train_mode(net: nn.Module, x: torch.Tensor) -> float:
    return net(x).argmax(1).float().mean().item()


@torch.no_grad()
def in_eval_mode(net: nn.Module, x: torch.Tensor) -> float:
    net.eval()
    result = net(x).argmax(1).float().mean().item()
    net.train()
    return result


@torch.no_grad()
def left_in_eval_mode(net: nn.Module, x: torch.Tensor) -> float:
    net.eval()
    return net(x).square().mean().item()


def test_an_evaluation_in_training_mode_is_asked_about() -> None:
    report, net = train(in_train_mode)
    assert shown(report) == [("evaluated-in-train-mode", STEPS)]
    assert "its 1.running_mean moves" in str(report)
    _, other = train(nothing, audited=False)
    assert not torch.allclose(net.get_buffer("1.running_mean"), other.get_buffer("1.running_mean"))


def test_an_evaluation_in_eval_mode_moves_nothing() -> None:
    report, net = train(in_eval_mode)
    assert shown(report) == []
    _, other = train(nothing, audited=False)
    assert torch.equal(net.get_buffer("1.running_mean"), other.get_buffer("1.running_mean"))


@torch.no_grad()
def pseudo_labels(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).softmax(1).argmax(1)


@torch.no_grad()
def stored(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    store = torch.zeros(2, 8, 4)
    store[0] = net(x)
    return store


def on_labels(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
    return plainly(net, x, given) if given is None else nn.functional.cross_entropy(net(x), given)


def towards(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
    return plainly(net, x, given) if given is None else (net(x) - given[0]).square().mean()


def on_value(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
    return plainly(net, x if given is None else x + given[0], None)


@pytest.mark.parametrize(("between", "loss"), [(pseudo_labels, on_labels), (stored, towards), (stored, on_value)])
def test_a_forward_whose_result_a_later_loss_reads_is_no_evaluation(between: Between, loss: Loss) -> None:
    report, _ = train(between, loss)
    assert shown(report) == [("evaluated-in-train-mode", 1)]  # the last one, after which no loss follows


def test_statistics_that_are_estimated_anew_are_meant_to_move() -> None:
    report, net = train(lambda net, x: update_bn([x], net))
    assert shown(report) == []
    assert torch.count_nonzero(net.get_buffer("1.running_mean"))


def test_a_reentrant_checkpoint_is_no_evaluation() -> None:
    def loss(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
        result = checkpoint(net, x.requires_grad_(), use_reentrant=True)
        assert isinstance(result, torch.Tensor)
        return result.square().mean()

    report, _ = train(nothing, loss)
    assert "evaluated-in-train-mode" not in [code for code, _ in shown(report)]


def test_who_never_calls_train_again_is_asked() -> None:
    report, _ = train(left_in_eval_mode)
    assert shown(report) == [("trained-in-eval-mode", STEPS - 1)]
    assert "since its evaluation" in str(report)


def test_an_attack_in_eval_mode_before_each_step_is_meant() -> None:
    def loss(net: nn.Module, x: torch.Tensor, given: Any) -> torch.Tensor:
        net.eval()
        x.requires_grad_()
        (slope,) = torch.autograd.grad(net(x).square().mean(), x)
        net.train()
        return net(x.detach() + 0.1 * slope.sign()).square().mean()

    report, _ = train(in_eval_mode, loss)
    assert "trained-in-eval-mode" not in [code for code, _ in shown(report)]


def test_a_line_that_calls_a_normalized_critic_twice_accumulates_nothing() -> None:
    torch.manual_seed(0)
    critic = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 1))
    opt = torch.optim.SGD(critic.parameters(), 0.1)
    with audit() as audited:
        for _ in range(3):
            real, fake = torch.randn(8, 4), torch.randn(8, 4)
            opt.zero_grad()
            (torch.relu(1 - critic(real)).mean() + torch.relu(1 + critic(fake)).mean()).backward()
            opt.step()
    assert [each.code for each in audited.findings] == []


@pytest.mark.parametrize("without_graph", [torch.no_grad, torch.inference_mode])
def test_what_a_frozen_model_does_is_seen_in_inference_mode_too(without_graph: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    teacher = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with audit() as audited:
        for x in torch.randn(STEPS, 8, 4):
            with without_graph():
                goal = teacher(x)
            opt.zero_grad()
            (net(x) - goal.clone()).square().mean().backward()
            opt.step()
    assert shown(audited.report) == [("frozen-in-train-mode", 4 * STEPS)]
    trace = audited.report.trace
    assert {trace.tensors[each.tensor].name for each in trace.of(Write) if each.by == "forward"} == {
        *(name for name, _ in teacher.named_buffers())
    }


def by_hand(weights: list[torch.Tensor], gradients: tuple[torch.Tensor, ...]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.data -= 0.1 * gradient


@torch.no_grad()
def by_lists(weights: list[torch.Tensor], gradients: tuple[torch.Tensor, ...]) -> None:
    torch._foreach_add_(weights, gradients, alpha=-0.1)


def by_rebinding(weights: list[torch.Tensor], gradients: tuple[torch.Tensor, ...]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.data = weight.data - 0.1 * gradient


@pytest.mark.parametrize("step", [by_hand, by_lists, by_rebinding])
def test_a_generator_that_code_of_the_program_steps_is_not_frozen(step: Callable[..., None]) -> None:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    critic = nn.Linear(4, 1)
    before = [each.detach().clone() for each in maker.parameters()]
    with audit() as audited:
        for real, noise in zip(torch.randn(STEPS, 8, 4), torch.randn(STEPS, 8, 4), strict=True):
            with torch.no_grad():
                fake = maker(noise)
            loss = critic(fake).mean() - critic(real).mean()
            step([*critic.parameters()], torch.autograd.grad(loss, [*critic.parameters()]))
            loss = -critic(maker(noise)).mean()
            step([*maker.parameters()], torch.autograd.grad(loss, [*maker.parameters()]))
    assert not all(map(torch.equal, before, maker.parameters()))
    assert shown(audited.report) == []


def test_a_target_that_is_given_other_parameters_is_not_frozen() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    slow = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    with audit() as audited:
        for x in torch.randn(STEPS, 8, 4):
            with torch.no_grad():
                goal = slow(x)
            opt.zero_grad()
            (net(x + 0.1) - goal).square().mean().backward()
            opt.step()
            for mine, its in zip(slow, net, strict=True):
                for name, weight in its.named_parameters():
                    mean = 0.9 * mine.get_parameter(name) + 0.1 * weight.detach()
                    setattr(mine, name, nn.Parameter(mean, requires_grad=False))
    assert shown(audited.report) == []


def test_where_nothing_is_updated_a_model_in_training_mode_is_asked_about() -> None:
    net = nn.BatchNorm1d(4)
    with audit() as audited, torch.no_grad():
        net(torch.randn(8, 4))
    assert [(each.code, level_of(each)) for each in audited.findings] == [("frozen-in-train-mode", "question")]
