"""CycleGAN with one update of both translators and with one update each; critics judge with the weights they had."""

from __future__ import annotations

from abc import abstractmethod
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.case import Case, Loop, MakeOptimizer, Tensors

HEAD = """
graphspec: 1
name: cyclegan
inputs: {a: {shape: [batch, 1, 4, 4]}, b: {shape: [batch, 1, 4, 4]}}
models:
  to_b: {layers: [{conv2d: {out: 2, kernel: 3, padding: 1}}, tanh, {conv2d: {out: 1, kernel: 3, padding: 1}}]OWN}
  to_a: {like: to_b, init: freshOWN}
  critic_b: {layers: [{conv2d: {out: 2, kernel: 3}}, {leaky_relu: 0.2}, flatten, {linear: 1}], optimizer: OPTIMIZER}
  critic_a: {like: critic_b, init: fresh, optimizer: OPTIMIZER}
outputs: [LOSSES, a_loss, b_loss, fake_b]
ops:
  fake_b: {forward: to_b, inputs: a}
  fake_a: {forward: to_a, inputs: b}
  a_again: {forward: to_a, inputs: fake_b, after: []}
  b_again: {forward: to_b, inputs: fake_a, after: []}
  on_fake_b: {forward: critic_b, inputs: fake_b, after: []}
  on_fake_a: {forward: critic_a, inputs: fake_a, after: []}
  fool_b: {loss: mse, inputs: [on_fake_b, 1.0]}
  fool_a: {loss: mse, inputs: [on_fake_a, 1.0]}
  cycle_a: {loss: l1, inputs: [a_again, a], weight: 10}
  cycle_b: {loss: l1, inputs: [b_again, b], weight: 10}
  on_a: {forward: critic_a, inputs: a}
  on_b: {forward: critic_b, inputs: b}
  real_a: {loss: mse, inputs: [on_a, 1.0]}
  real_b: {loss: mse, inputs: [on_b, 1.0]}
  false_a: {loss: mse, inputs: [on_fake_a, 0.0]}
  false_b: {loss: mse, inputs: [on_fake_b, 0.0]}
  a_loss: {call: add, inputs: [real_a, false_a]}
  b_loss: {call: add, inputs: [real_b, false_b]}
  step_critic_a: {update: critic_a, loss: a_loss}
  step_critic_b: {update: critic_b, loss: b_loss}
"""
ONE = """\
  loss: {call: add, inputs: [fool_b, cycle_a, fool_a, cycle_b]}
  step_both: {update: [to_b, to_a], loss: loss, optimizer: OPTIMIZER}
"""
TWO = """\
  to_b_loss: {call: add, inputs: [fool_b, cycle_a]}
  to_a_loss: {call: add, inputs: [fool_a, cycle_b]}
  step_to_b: {update: to_b, loss: to_b_loss}
  step_to_a: {update: to_a, loss: to_a_loss}
"""
JOINT = HEAD.replace("OWN", "").replace("LOSSES", "loss") + ONE
SEPARATE = HEAD.replace("OWN", ", optimizer: OPTIMIZER").replace("LOSSES", "to_b_loss, to_a_loss") + TWO


class Translators(Loop):
    """Two translators and two critics; the critics learn after the translators, from detached images."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.to_b, self.to_a = translator(), translator()
        self.critic_b, self.critic_a = critic(), critic()
        self.nets = {"to_b": self.to_b, "to_a": self.to_a, "critic_b": self.critic_b, "critic_a": self.critic_a}
        self.opt_critic_a, self.opt_critic_b = make(self.critic_a.parameters()), make(self.critic_b.parameters())

    def step(self, a: torch.Tensor, b: torch.Tensor) -> Tensors:
        fake_b, fake_a = self.to_b(a), self.to_a(b)
        losses = self.move_translators(a, b, fake_a, fake_b)
        losses |= self.move_critics(a, b, fake_a, fake_b)
        return {name: loss.detach() for name, loss in losses.items()} | {"fake_b": fake_b.detach()}

    @abstractmethod
    def move_translators(self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor) -> Tensors:
        """Move both translators, the critics frozen."""

    def move_critics(self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor) -> Tensors:
        losses = {}
        for name, net, optimizer, real, fake in (
            ("a_loss", self.critic_a, self.opt_critic_a, a, fake_a),
            ("b_loss", self.critic_b, self.opt_critic_b, b, fake_b),
        ):
            optimizer.zero_grad()
            losses[name] = towards(net(real), 1.0) + towards(net(fake.detach()), 0.0)
            losses[name].backward()
            optimizer.step()
        return losses

    def translator_losses(
        self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        loss_b = towards(self.critic_b(fake_b), 1.0) + 10 * F.l1_loss(self.to_a(fake_b), a)
        loss_a = towards(self.critic_a(fake_a), 1.0) + 10 * F.l1_loss(self.to_b(fake_a), b)
        return loss_b, loss_a


class OneUpdate(Translators):
    """One optimizer moves both translators on the sum of their losses, as in the published program."""

    def __init__(self, make: MakeOptimizer) -> None:
        super().__init__(make)
        self.optimizer = make(chain(self.to_b.parameters(), self.to_a.parameters()))

    def move_translators(self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor) -> Tensors:
        for each in (self.critic_a, self.critic_b):
            each.requires_grad_(False)
        self.optimizer.zero_grad()
        loss = sum(self.translator_losses(a, b, fake_a, fake_b))
        loss.backward()
        self.optimizer.step()
        for each in (self.critic_a, self.critic_b):
            each.requires_grad_(True)
        return {"loss": loss}


class CriticsFirst(OneUpdate):
    """The mistake: the critics have moved when they judge."""

    def step(self, a: torch.Tensor, b: torch.Tensor) -> Tensors:
        fake_b, fake_a = self.to_b(a), self.to_a(b)
        losses = self.move_critics(a, b, fake_a, fake_b)
        losses |= self.move_translators(a, b, fake_a, fake_b)
        return {name: loss.detach() for name, loss in losses.items()} | {"fake_b": fake_b.detach()}


class TwoUpdates(Translators):
    """Each translator learns from its own loss; both gradients are taken before either moves."""

    def __init__(self, make: MakeOptimizer) -> None:
        super().__init__(make)
        self.opt_to_b, self.opt_to_a = make(self.to_b.parameters()), make(self.to_a.parameters())

    def move_translators(self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor) -> Tensors:
        self.opt_to_b.zero_grad()
        self.opt_to_a.zero_grad()
        loss_b, loss_a = self.translator_losses(a, b, fake_a, fake_b)
        loss_b.backward(inputs=list(self.to_b.parameters()), retain_graph=True)
        loss_a.backward(inputs=list(self.to_a.parameters()))
        self.opt_to_b.step()
        self.opt_to_a.step()
        return {"to_b_loss": loss_b, "to_a_loss": loss_a}


class InTurn(TwoUpdates):
    """The mistake: the second translator learns to undo what the first has become."""

    def move_translators(self, a: torch.Tensor, b: torch.Tensor, fake_a: torch.Tensor, fake_b: torch.Tensor) -> Tensors:
        self.opt_to_b.zero_grad()
        self.opt_to_a.zero_grad()
        loss_b, _ = self.translator_losses(a, b, fake_a.detach(), fake_b)
        loss_b.backward(inputs=list(self.to_b.parameters()), retain_graph=True)
        self.opt_to_b.step()
        _, loss_a = self.translator_losses(a, b, fake_a, fake_b.detach())
        loss_a.backward(inputs=list(self.to_a.parameters()))
        self.opt_to_a.step()
        return {"to_b_loss": loss_b, "to_a_loss": loss_a}


def translator() -> nn.Module:
    """Return a net from images to images."""
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Conv2d(2, 1, 3, padding=1)).double()


def critic() -> nn.Module:
    """Return a net from images to one score."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8, 1)).double()


def towards(score: torch.Tensor, target: float) -> torch.Tensor:
    """Return the least-squares loss against one label for all."""
    return F.mse_loss(score, torch.full_like(score, target))


CRITICS = ("step_critic_a", "step_critic_b")
BOTH, EACH = ("step_both",), ("step_to_b", "step_to_a")
SHAPES = {"a": (3, 1, 4, 4), "b": (3, 1, 4, 4)}


def one(name: str, updates: tuple[str, ...], *, listed: frozenset[str] = frozenset()) -> Case:
    """Return the step with one update of both: the critics wait if their gradients are taken first."""
    return Case(
        name=name, text=JOINT, updates=updates, loop=OneUpdate, mutant=CriticsFirst, shapes=SHAPES, listed=listed
    )


def two(name: str, updates: tuple[str, ...], *, listed: frozenset[str]) -> Case:
    """Return the step with two updates: each loss goes through the other translator, so one waits in any order."""
    fewest = frozenset({"step_to_b"})
    loop, mutant = TwoUpdates, InTurn
    return Case(
        name=name,
        text=SEPARATE,
        updates=updates,
        loop=loop,
        mutant=mutant,
        shapes=SHAPES,
        listed=listed,
        fewest=fewest,
    )


CASES = (
    one("cyclegan, one update, D first", (*CRITICS, *BOTH), listed=frozenset(CRITICS)),
    one("cyclegan, one update, G first", (*BOTH, *CRITICS)),
    two("cyclegan, two updates, D first", (*CRITICS, *EACH), listed=frozenset({*CRITICS, "step_to_b"})),
    two("cyclegan, two updates, G first", (*EACH, *CRITICS), listed=frozenset({"step_to_b"})),
)
