"""BYOL: two views, a target that follows the encoder, BatchNorm in every net, one optimizer for two models."""

from __future__ import annotations

import copy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.case import Case, Loop, MakeOptimizer, Tensors

BYOL = """
graphspec: 1
name: byol
inputs: {one: {shape: [batch, 6]}, two: {shape: [batch, 6]}}
models:
  encoder: {class: "nets:Encoder", traits: {buffers: true, rng: false, batch_coupled: true}}
  predictor: {class: "nets:Predictor", traits: {buffers: true, rng: false, batch_coupled: true}}
  target: {like: encoder}
outputs: [loss, online_1]
ops:
  code_1: {forward: encoder, inputs: one}
  code_2: {forward: encoder, inputs: two}
  online_1: {forward: predictor, inputs: code_1}
  online_2: {forward: predictor, inputs: code_2}
  target_1: {forward: target, inputs: one, train: true, stop: true}
  target_2: {forward: target, inputs: two, train: true, stop: true}
  apart_1: {loss: cosine, inputs: [online_1, target_2], weight: 2}
  apart_2: {loss: cosine, inputs: [online_2, target_1], weight: 2}
  loss: {call: add, inputs: [apart_1, apart_2]}
  average: {ema: encoder, into: target, decay: 0.9, buffers: ignore}
  step: {update: [encoder, predictor], loss: loss, optimizer: OPTIMIZER}
"""


class Bootstrap(Loop):
    """The order of the published programs: loss, step, then the target follows."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.encoder, self.predictor = net(6, 4), net(4, 4)
        self.target = copy.deepcopy(self.encoder)
        self.nets = {"encoder": self.encoder, "predictor": self.predictor, "target": self.target}
        self.optimizer = make(chain(self.encoder.parameters(), self.predictor.parameters()))

    def step(self, one: torch.Tensor, two: torch.Tensor) -> Tensors:
        online_1, online_2 = self.predictor(self.encoder(one)), self.predictor(self.encoder(two))
        with torch.no_grad():
            target_1, target_2 = self.target(one), self.target(two)
        loss = apart(online_1, target_2) + apart(online_2, target_1)
        self.optimizer.zero_grad()
        loss.backward()
        self.move()
        return {"loss": loss.detach(), "online_1": online_1.detach()}

    def move(self) -> None:
        self.optimizer.step()
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        for old, new in zip(self.target.parameters(), self.encoder.parameters(), strict=True):
            old.mul_(0.9).add_(new, alpha=0.1)


class EarlyTarget(Bootstrap):
    """The mistake: the target follows the encoder as it was before the step."""

    def move(self) -> None:
        self.follow()
        self.optimizer.step()


def net(inputs: int, outputs: int) -> nn.Module:
    """Return a net with one normalized hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs)).double()


def apart(online: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the squared distance of two directions, averaged over the batch."""
    return (2 - 2 * (F.normalize(online, dim=-1) * F.normalize(target, dim=-1)).sum(-1)).mean()


CASES = (
    Case(
        name="byol",
        text=BYOL,
        updates=("step",),
        loop=Bootstrap,
        mutant=EarlyTarget,
        shapes={"one": (7, 6), "two": (7, 6)},
        given=("encoder", "predictor"),
    ),
)
