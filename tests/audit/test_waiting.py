"""Optimizers that are never stepped, and weights that get no gradient: found in functions too, and not kept alive."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from runtime.audit import audit


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Linear(4, 4)
    return net, torch.optim.SGD(net.parameters(), 0.1)


def step(net: nn.Module, head: nn.Module, opt: torch.optim.Optimizer) -> None:
    opt.zero_grad()
    head(net(torch.ones(2, 4))).square().mean().backward()
    opt.step()


def test_a_local_optimizer_that_is_never_stepped_is_found_and_called_by_its_variable() -> None:
    def loop() -> None:
        net, opt = make()
        head, opt_head = make()  # noqa: RUF059  # it waits
        for _ in range(2):
            step(net, head, opt)

    with audit() as report:
        loop()
    messages = [each.message for each in report.findings if each.code == "untrained"]
    assert messages == ["head gets gradients here, but opt_head is never stepped"]


def test_an_optimizer_that_the_program_drops_is_gone_at_once_and_not_missed() -> None:
    net, opt = make()
    head, waiting = make()
    gone = weakref.ref(waiting)
    with audit() as report:
        step(net, head, opt)
        del waiting
        gc.collect()
        assert gone() is None
        step(net, head, opt)
        step(net, head, opt)
    assert [each.message for each in report.findings if "never stepped" in each.message] == []


def test_the_optimizer_and_its_weights_are_gone_when_the_loop_is() -> None:
    left = list[weakref.ref[object]]()

    def loop() -> None:
        net, opt = make()
        head, waiting = make()
        for _ in range(2):
            step(net, head, opt)
        left.extend(map(weakref.ref, (waiting, head, *head.parameters())))

    with audit():
        loop()
        gc.collect()
        assert [ref() for ref in left] == [None] * len(left)


def test_weights_whose_gradients_are_dropped_are_not_said_to_be_out_of_reach() -> None:
    net, opt = make()
    assert isinstance(net, nn.Linear)
    with audit() as report:
        for _ in range(2):
            opt.zero_grad()
            net(torch.ones(2, 4)).square().mean().backward()
            net.bias.grad = None
            opt.step()
    messages = [each.message for each in report.findings if each.code == "untrained"]
    assert messages == ["opt has net.bias, and net runs, but their gradients are dropped before each of its steps"]
