"""Encoder and decoder with one loss and an update each, and three models that have nothing to do with each other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.case import Case, Loop, MakeOptimizer, Tensors

AUTOENCODER = """
graphspec: 1
name: autoencoder
inputs: {x: {shape: [batch, 6]}}
models:
  encoder: {class: "nets:Encoder", traits: {buffers: false, rng: false, batch_coupled: false}, optimizer: OPTIMIZER}
  decoder: {layers: [{linear: 8}, tanh, {linear: 6}], optimizer: OPTIMIZER}
outputs: [loss, rebuilt]
ops:
  code: {forward: encoder, inputs: x}
  rebuilt: {forward: decoder, inputs: code}
  loss: {loss: mse, inputs: [rebuilt, x]}
  step_encoder: {update: encoder, loss: loss}
  step_decoder: {update: decoder, loss: loss}
"""

STRANGERS = """
graphspec: 1
name: strangers
inputs: {x: {shape: [batch, 6]}}
models:
  a: {layers: [{linear: 8}, tanh, {linear: 6}], optimizer: OPTIMIZER}
  b: {like: a, init: fresh, optimizer: OPTIMIZER}
  c: {like: a, init: fresh, optimizer: OPTIMIZER}
outputs: [a_loss, b_loss, c_loss]
ops:
  by_a: {forward: a, inputs: x}
  by_b: {forward: b, inputs: x}
  by_c: {forward: c, inputs: x}
  a_loss: {loss: mse, inputs: [by_a, x]}
  b_loss: {loss: mse, inputs: [by_b, x]}
  c_loss: {loss: mse, inputs: [by_c, x]}
  step_a: {update: a, loss: a_loss}
  step_b: {update: b, loss: b_loss}
  step_c: {update: c, loss: c_loss}
"""


def mlp(inputs: int, outputs: int) -> nn.Module:
    """Return a net with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


class OneLoss(Loop):
    """One backward for both, then both steps."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.encoder, self.decoder = mlp(6, 2), mlp(2, 6)
        self.nets = {"encoder": self.encoder, "decoder": self.decoder}
        self.opt_encoder, self.opt_decoder = make(self.encoder.parameters()), make(self.decoder.parameters())

    def step(self, x: torch.Tensor) -> Tensors:
        rebuilt = self.decoder(self.encoder(x))
        loss = F.mse_loss(rebuilt, x)
        self.opt_encoder.zero_grad()
        self.opt_decoder.zero_grad()
        loss.backward()
        self.opt_encoder.step()
        self.opt_decoder.step()
        return {"loss": loss.detach(), "rebuilt": rebuilt.detach()}


class DecoderFirst(OneLoss):
    """The mistake: the encoder's gradient runs through the decoder as it is after its step."""

    def step(self, x: torch.Tensor) -> Tensors:
        rebuilt = self.decoder(self.encoder(x))
        loss = F.mse_loss(rebuilt, x)
        for optimizer, each in ((self.opt_decoder, self.decoder), (self.opt_encoder, self.encoder)):
            optimizer.zero_grad()
            F.mse_loss(self.decoder(self.encoder(x)), x).backward(inputs=list(each.parameters()))
            optimizer.step()
        return {"loss": loss.detach(), "rebuilt": rebuilt.detach()}


class Strangers(Loop):
    """Three models, each trained by itself."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.nets = {name: mlp(6, 6) for name in "abc"}
        self.optimizers = {name: make(each.parameters()) for name, each in self.nets.items()}

    def step(self, x: torch.Tensor) -> Tensors:
        losses = {f"{name}_loss": F.mse_loss(each(x), x) for name, each in self.nets.items()}
        for optimizer, loss in zip(self.optimizers.values(), losses.values(), strict=True):
            loss.backward()
            optimizer.step()
            self.clear(optimizer)
        return {name: loss.detach() for name, loss in losses.items()}

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()


class NeverCleared(Strangers):
    """The mistake: gradients of earlier steps are added up."""

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        pass


def autoencoder(name: str, updates: tuple[str, ...], *, listed: frozenset[str] = frozenset()) -> Case:
    """Return the autoencoder: the decoder waits if its gradient is taken first."""
    return Case(
        name=name,
        text=AUTOENCODER,
        updates=updates,
        loop=OneLoss,
        mutant=DecoderFirst,
        shapes={"x": (7, 6)},
        given=("encoder",),
        listed=listed,
    )


CASES = (
    autoencoder("autoencoder, encoder first", ("step_encoder", "step_decoder")),
    autoencoder("autoencoder, decoder first", ("step_decoder", "step_encoder"), listed=frozenset({"step_decoder"})),
    Case(
        name="three independent models",
        text=STRANGERS,
        updates=("step_a", "step_b", "step_c"),
        loop=Strangers,
        mutant=NeverCleared,
        shapes={"x": (7, 6)},
    ),
)
