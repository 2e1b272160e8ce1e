"""What is computed for nothing: its share of the time, by a clock that gives every kernel one second; what is kept."""

from __future__ import annotations

import weakref
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from runtime.audit import audit
from runtime.audit.report import format_numbers, to_json
from runtime.backends.torch.audit import kernel_accesses
from runtime.backends.torch.audit.spent import Kernel, find_spent

STEPS = 3


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_accesses, "time", SimpleNamespace(perf_counter=count().__next__))


def train(*, freeze: bool = False, critics: int = 1):
    """Audit some steps of a generator and its critics; ``freeze``: its backward computes nothing for the critics."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6))
    judges = [nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(critics)]
    opt_g = torch.optim.SGD(generator.parameters(), 0.1)
    opt_d = torch.optim.SGD([each for D in judges for each in D.parameters()], 0.1)
    with audit() as audited:
        for _ in range(STEPS):
            fake = generator(torch.randn(8, 4))
            loss_d = sum(D(torch.randn(8, 6)).square().mean() + D(fake.detach()).mean() for D in judges)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = -sum(D(fake).mean() for D in judges)
            opt_g.zero_grad()
            loss_g.backward(inputs=list(generator.parameters()) if freeze else None)
            opt_g.step()
        opt_d.zero_grad()
    return audited.report


@pytest.mark.parametrize("critics", [1, 2])
def test_the_share_of_lost_gradients_is_what_the_remedy_saves(critics: int) -> None:
    wasteful, frugal = train(critics=critics), train(critics=critics, freeze=True)
    (lost,) = wasteful.of("waste")
    assert (lost.code, lost.times, frugal.of("waste")) == ("lost-grad", STEPS, ())
    assert lost.share is not None
    saved = wasteful.trace.seconds - frugal.trace.seconds
    assert lost.share * wasteful.trace.seconds == pytest.approx(saved)
    assert 0 < lost.share < 0.5


def test_the_report_says_the_share() -> None:
    report = train()
    (lost,) = report.of("waste")
    shown = f"(3 times, {lost.share:.0%} of the time)"
    assert f"or give backward(inputs=...) {shown}\n" in str(report)
    (found,) = (each for each in to_json(report)["findings"] if each["code"] == "lost-grad")
    assert found["share"] == round(lost.share, 4)
    assert all(each.share is None for each in report.findings if each.code != "lost-grad")
    assert format_numbers(replace(lost, share=0.004)) == " (3 times, under 1% of the time)"


def test_the_share_of_first_layers_that_no_optimizer_has_is_what_freezing_them_saves() -> None:
    def tune(*, freeze: bool):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))
        net[:4].requires_grad_(not freeze)
        opt = torch.optim.SGD(net[4].parameters(), 0.1)
        with audit() as audited:
            for _ in range(STEPS):
                opt.zero_grad()
                net(torch.randn(8, 4)).square().mean().backward()
                opt.step()
        return audited.report

    wasteful, frugal = tune(freeze=False), tune(freeze=True)
    (found,) = wasteful.of("waste")
    assert (found.code, frugal.of("waste")) == ("untrained", ())
    assert found.share is not None
    assert found.share * wasteful.trace.seconds == pytest.approx(wasteful.trace.seconds - frugal.trace.seconds)


def test_models_that_lose_their_gradients_at_one_line_are_one_finding() -> None:
    torch.manual_seed(0)
    encoder, first, second = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)
    optimizer = torch.optim.SGD(encoder.parameters(), 0.1)
    with audit() as report:
        for _ in range(2):
            hidden = encoder(torch.randn(8, 4))
            optimizer.zero_grad()
            (first(hidden) + second(hidden)).square().mean().backward()
            optimizer.step()
    (lost,) = report.report.of("waste")
    assert "gradients of second, first that are in no optimizer: freeze second, first there" in lost.message
    assert lost.times == 2


class Net(nn.Module):
    """A model whose `forward` the program calls itself, past the hooks of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_layers_with_one_name_have_also_that_of_their_model() -> None:
    actor, critic = Net(), Net()
    opt_a, opt_c = (torch.optim.SGD(each.parameters(), 0.1) for each in (actor, critic))
    with audit() as report:
        for _ in range(STEPS):
            opt_a.zero_grad()
            critic.forward(actor.forward(torch.randn(8, 4))).sum().backward()
            opt_a.step()
            opt_c.zero_grad()
            critic.forward(torch.randn(8, 4)).sum().backward()
            opt_c.step()
    (lost,) = (each for each in report.findings if each.code == "lost-grad")
    assert "computes gradients of critic.layer that are zeroed" in lost.message


def test_a_storage_that_is_used_again_is_another_value() -> None:
    ran = [
        Kernel(1.0, frozenset({1}), frozenset({2})),  # a temporary value for tensor 0 ...
        Kernel(2.0, frozenset({2}), frozenset({10})),  # ... and its gradient
        Kernel(4.0, frozenset({1}), frozenset({2})),  # another in the same storage, for tensor 1
        Kernel(8.0, frozenset({2}), frozenset({11})),
        Kernel(16.0, frozenset({3}), frozenset({4})),  # for nothing
    ]
    spent = {each.tensors: each.seconds for each in find_spent(ran, {10: 0, 11: 1})}
    assert spent == {frozenset({0}): 3.0, frozenset({1}): 12.0, frozenset(): 16.0}


def test_what_serves_several_gradients_is_time_of_all_of_them() -> None:
    ran = [
        Kernel(1.0, frozenset({1}), frozenset({2})),
        Kernel(2.0, frozenset({2}), frozenset({10})),
        Kernel(4.0, frozenset({2}), frozenset({11})),
    ]
    spent = {each.tensors: each.seconds for each in find_spent(ran, {10: 0, 11: 1})}
    assert spent == {frozenset({0, 1}): 1.0, frozenset({0}): 2.0, frozenset({1}): 4.0}


def test_an_audited_function_lets_go_of_what_its_variables_held() -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with audit():
        for _ in range(2):
            loss = net(torch.ones(8, 4)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            held = weakref.ref(loss)
            del loss
            assert held() is None
