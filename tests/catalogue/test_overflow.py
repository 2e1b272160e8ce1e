"""Scaled losses and gradients that overflow: clipped too early, a scale moved twice, half a step, spoilt momentum."""

from __future__ import annotations

import torch

from tests.catalogue.mathematics import World, clip, high, low, mlp, mse, sgd, slopes
from tests.catalogue.references import at_the_start
from tests.catalogue.trial import SAME, WRONG, Loop, each_backend, order_of, train

SCALE = 32768.0


def clipped(world: World, x: torch.Tensor, y: torch.Tensor) -> World:
    """Move a net by its gradient, which is at most so long."""
    return {"net": sgd(world["net"], clip(slopes(lambda w: mse(mlp(w, x), y), world["net"]), 0.5))}


class ClippedWhileScaled(Loop):
    """The mistake: the gradients of the scaled loss are clipped, and divided by the scale behind that."""

    def prepare(self):
        self.net = self.sgd("net")

    def step(self, x, y):
        self.net.zero_grad()
        (SCALE * mse(self.nets["net"](x), y)).backward()
        torch.nn.utils.clip_grad_norm_(self.nets["net"].parameters(), 0.5)
        for parameter in self.nets["net"].parameters():
            parameter.grad /= SCALE
        self.net.step()


@each_backend
def test_gradients_of_a_scaled_loss_are_clipped_at_their_own_size(backend):
    trial = train("scaled-and-clipped", backend=backend)
    done = [each for each in order_of(trial.plan) if each.endswith(" step") and "release" not in each]
    # clips pass on what is not finite
    assert done == ["gradient step", "transform step", "check_finite step", "apply step"]
    assert trial.error_of(clipped) <= SAME
    assert trial.error_of_loop(ClippedWhileScaled) > WRONG


class ScaledTwice(Loop):
    """The mistake: the scale is doubled behind the step of each of two optimizers."""

    def prepare(self):
        self.g, self.d, self.scale = self.sgd("g"), self.sgd("d"), 1024.0

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        losses = high(d(image)) + low(d(fake)), high(d(fake))
        found = [
            torch.autograd.grad(self.scale * loss, [*net.parameters()], retain_graph=True)
            for loss, net in zip(losses, (d, g), strict=True)
        ]
        for net, optimizer, gradients in zip((d, g), (self.d, self.g), found, strict=True):
            for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                parameter.grad = gradient / self.scale
            optimizer.step()
            self.scale *= 2


@each_backend
def test_one_scale_moves_once_behind_both_updates(backend):
    trial = train("one-scale-two-updates", backend=backend)
    assert [each for each in order_of(trial.plan) if each.startswith("resolve_overflow")] == [
        "resolve_overflow overflow"
    ]
    assert order_of(trial.plan)[-2] == "resolve_overflow overflow"
    assert trial.error_of(at_the_start) <= SAME
    assert trial.error_of_loop(ScaledTwice) > WRONG


def both_or_none(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move both players, unless the gradient of one is not finite."""
    return at_the_start(world, image, z) if image.isfinite().all() else world


class SkippedAlone(Loop):
    """The mistake: every optimizer looks at its own gradients alone."""

    def prepare(self):
        self.g, self.d = self.sgd("g"), self.sgd("d")

    def step(self, image, z):
        g, d = self.nets["g"], self.nets["d"]
        fake = g(z)
        losses = high(d(image)) + low(d(fake)), high(d(fake))
        found = [
            torch.autograd.grad(loss, [*net.parameters()], retain_graph=True)
            for loss, net in zip(losses, (d, g), strict=True)
        ]
        for net, optimizer, gradients in zip((d, g), (self.d, self.g), found, strict=True):
            if all(gradient.isfinite().all() for gradient in gradients):
                for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                    parameter.grad = gradient
                optimizer.step()


@each_backend
def test_where_one_player_overflows_neither_moves(backend):
    trial = train("skipped-together", backend=backend, burst="image")
    assert trial.error_of(both_or_none) <= SAME
    assert trial.error_of_loop(SkippedAlone) > WRONG


class Velocity:
    """A net with momentum that remembers nothing of a step whose gradient is not finite."""

    def __init__(self) -> None:
        self.v: dict[str, torch.Tensor] = {}

    def __call__(self, world: World, x: torch.Tensor, y: torch.Tensor) -> World:
        """Return the world after a step."""
        g = slopes(lambda w: mse(mlp(w, x), y), world["net"])
        if not all(each.isfinite().all() for each in g.values()):
            return world
        self.v = {name: 0.9 * self.v.get(name, torch.zeros_like(each)) + each for name, each in g.items()}
        return {"net": sgd(world["net"], self.v)}


class Faded(Loop):
    """The mistake: where the gradient is not finite the weights stay, and the momentum fades all the same."""

    def prepare(self):
        self.net = self.sgd("net", momentum=0.9)

    def step(self, x, y):
        self.net.zero_grad()
        mse(self.nets["net"](x), y).backward()
        if all(parameter.grad.isfinite().all() for parameter in self.nets["net"].parameters()):
            self.net.step()
        else:
            for state in self.net.state.values():
                state["momentum_buffer"] *= 0.9


@each_backend
def test_momentum_stays_as_it_is_in_a_skipped_step(backend):
    trial = train("skipped-momentum", backend=backend, burst="x")
    assert trial.error_of(Velocity()) <= SAME
    assert trial.error_of_loop(Faded) > WRONG
