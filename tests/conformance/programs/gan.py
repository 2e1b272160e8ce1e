"""Two GANs: DCGAN's order, where the generator is judged by the updated discriminator, and both players at once."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.case import Case, Loop, MakeOptimizer, Tensors

DCGAN = """
graphspec: 1
name: dcgan
inputs: {image: {shape: [batch, 6]}, z: {shape: [batch, 3]}}
models:
  generator: {class: "nets:Generator", traits: {buffers: true, rng: false, batch_coupled: true}, optimizer: OPTIMIZER}
  discriminator: {class: "nets:Critic", traits: {buffers: true, rng: false, batch_coupled: true}, optimizer: OPTIMIZER}
  sampler: {like: generator}
outputs: [d_loss, g_loss, fake]
ops:
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: image}
  on_fake: {forward: discriminator, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  judged: {forward: discriminator, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  average: {ema: generator, into: sampler, decay: 0.9, buffers: copy}
  step_d: {update: discriminator, loss: d_loss}
  step_g: {update: generator, loss: g_loss}
"""

SIMULTANEOUS = """
graphspec: 1
name: simultaneous-gan
inputs: {image: {shape: [batch, 6]}, z: {shape: [batch, 3]}}
models:
  generator: {layers: [{linear: 8}, batch_norm, relu, {linear: 6}, tanh], optimizer: OPTIMIZER}
  discriminator: {layers: [{linear: 8}, batch_norm, {leaky_relu: 0.2}, {linear: 1}], optimizer: OPTIMIZER}
  sampler: {like: generator}
outputs: [d_loss, g_loss, fake]
ops:
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: image}
  on_fake: {forward: discriminator, inputs: fake, after: []}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  g_loss: {loss: bce_with_logits, inputs: [on_fake, 1.0]}
  average: {ema: generator, into: sampler, decay: 0.9, buffers: average}
  step_d: {update: discriminator, loss: d_loss}
  step_g: {update: generator, loss: g_loss}
"""


class Players(Loop):
    """Two nets with BatchNorm, their optimizers and the generator's average."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        head = [nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh()]
        self.g = nn.Sequential(*head).double()
        self.d = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).double()
        self.sampler = copy.deepcopy(self.g)
        self.nets = {"generator": self.g, "discriminator": self.d, "sampler": self.sampler}
        self.opt_g, self.opt_d = make(self.g.parameters()), make(self.d.parameters())

    def average(self, buffers: float) -> None:
        """Move the average; ``buffers`` is the share of its own statistics that it keeps."""
        with torch.no_grad():
            for old, new in zip(self.sampler.parameters(), self.g.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)
            for old, new in zip(self.sampler.buffers(), self.g.buffers(), strict=True):
                old.copy_(buffers * old + (1 - buffers) * new if old.is_floating_point() else new)


def bce(logits: torch.Tensor, target: float) -> torch.Tensor:
    """Return the loss against one label for all."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


class Alternating(Players):
    """The discriminator steps, then the generator is judged by what it has become."""

    def step(self, image: torch.Tensor, z: torch.Tensor) -> Tensors:
        fake = self.g(z)
        d_loss = self.move_d(image, fake)
        g_loss = self.move_g(fake)
        self.average(buffers=0.0)
        return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach(), "fake": fake.detach()}

    def move_d(self, image: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        self.opt_d.zero_grad()
        loss = bce(self.d(image), 1.0) + bce(self.d(fake.detach()), 0.0)
        loss.backward()
        self.opt_d.step()
        return loss

    def move_g(self, fake: torch.Tensor) -> torch.Tensor:
        self.opt_g.zero_grad()
        loss = bce(self.d(fake), 1.0)
        loss.backward()
        self.opt_g.step()
        return loss


class GeneratorFirst(Alternating):
    """The mistake: the generator is judged before the discriminator moves."""

    def step(self, image: torch.Tensor, z: torch.Tensor) -> Tensors:
        fake = self.g(z)
        g_loss = self.move_g(fake)
        d_loss = self.move_d(image, fake)
        self.average(buffers=0.0)
        return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach(), "fake": fake.detach()}


class AtOnce(Players):
    """Both losses use one call of the discriminator; both gradients are taken before anybody moves."""

    def step(self, image: torch.Tensor, z: torch.Tensor) -> Tensors:
        self.opt_d.zero_grad()
        self.opt_g.zero_grad()
        fake = self.g(z)
        on_real, on_fake = self.d(image), self.d(fake)
        d_loss = bce(on_real, 1.0) + bce(on_fake, 0.0)
        d_loss.backward(inputs=list(self.d.parameters()), retain_graph=True)
        g_loss = self.judge(fake, on_fake)
        g_loss.backward(inputs=list(self.g.parameters()))
        self.move()
        self.average(buffers=0.9)
        return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach(), "fake": fake.detach()}

    def judge(self, fake: torch.Tensor, on_fake: torch.Tensor) -> torch.Tensor:
        return bce(on_fake, 1.0)

    def move(self) -> None:
        self.opt_d.step()
        self.opt_g.step()


class OneByOne(AtOnce):
    """The mistake: the discriminator has moved when the generator is judged."""

    def judge(self, fake: torch.Tensor, on_fake: torch.Tensor) -> torch.Tensor:
        self.opt_d.step()
        return bce(self.d(fake), 1.0)

    def move(self) -> None:
        self.opt_g.step()


SHAPES = {"image": (7, 6), "z": (7, 3)}
D_FIRST, G_FIRST = ("step_d", "step_g"), ("step_g", "step_d")


def alternating(name: str, updates: tuple[str, ...]) -> Case:
    """Return DCGAN's step: whatever the listing, the discriminator moves first, and nothing has to wait."""
    return Case(
        name=name,
        text=DCGAN,
        updates=updates,
        loop=Alternating,
        mutant=GeneratorFirst,
        shapes=SHAPES,
        given=("generator", "discriminator"),
    )


def at_once(name: str, updates: tuple[str, ...], *, listed: frozenset[str] = frozenset()) -> Case:
    """Return the simultaneous step: the discriminator waits if its gradient is taken first."""
    return Case(
        name=name, text=SIMULTANEOUS, updates=updates, loop=AtOnce, mutant=OneByOne, shapes=SHAPES, listed=listed
    )


CASES = (
    alternating("dcgan, D first", D_FIRST),
    alternating("dcgan, G first", G_FIRST),
    at_once("simultaneous gan, D first", D_FIRST, listed=frozenset({"step_d"})),
    at_once("simultaneous gan, G first", G_FIRST),
)
