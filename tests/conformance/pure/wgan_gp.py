"""WGAN-GP (Gulrajani et al. 2017, algorithm 1) with the example's nets."""

from __future__ import annotations

from functools import partial

import torch
from torch.func import grad

from tests.conformance.pure.mathematics import Slots, Weights, World, adam, layer_norm, leaky, linear, slopes
from tests.conformance.pure.reference import Reference, Tensors

RULE = {"lr": 1e-4, "betas": (0.0, 0.9)}


def generate(w: Weights, z: torch.Tensor) -> torch.Tensor:
    """Return images."""
    hidden = leaky(linear(w, "generator.2", leaky(linear(w, "generator.0", z))))
    return torch.tanh(linear(w, "generator.4", hidden)).reshape(-1, 1, 8, 8)


def judge(w: Weights, image: torch.Tensor) -> torch.Tensor:
    """Return what the critic makes of images."""
    hidden = linear(w, "critic.3", leaky(linear(w, "critic.1", image.flatten(1))))
    return linear(w, "critic.6", leaky(layer_norm(w, "critic.4", hidden)))


def find_penalty(
    w: Weights, image: torch.Tensor, fake: torch.Tensor, share: torch.Tensor, recorded: bool
) -> torch.Tensor:
    """Return ten times the mean square of what the critic's slope between the images is longer than 1."""
    between = share * image + (1 - share) * fake
    slope = grad(lambda x: judge(w, x).sum())(between)
    kept = slope if recorded else slope.detach()
    return 10 * (kept.flatten(1).square().sum(1).sqrt() - 1).square().mean()


def advance(world: World, batch: Tensors, *, recorded: bool = True, renewed: bool = True) -> tuple[World, Tensors]:
    """Move the critic, and behind every fifth of its steps the generator."""
    w, image = world.weights, batch["image"]
    fake = generate(w, batch["z"])
    penalty = partial(find_penalty, image=image, fake=fake, share=batch["share"], recorded=recorded)

    def loss(w: Weights) -> torch.Tensor:
        return judge(w, fake).mean() - judge(w, image).mean() + penalty(w)

    steps, slots = world.steps + 1, dict(world.slots)
    told = {"critic_loss": loss(w), "penalty": penalty(w)}
    judged_by, slots["critic"] = adam(w, slopes(loss, w, "critic"), slots.get("critic", Slots()), **RULE)
    moved = judged_by
    if steps % 5 == 0:
        seen = judged_by if renewed else w
        down = slopes(lambda w: -judge(w, generate(w, batch["new_z"])).mean(), seen, "generator")
        moved, slots["generator"] = adam(judged_by, down, slots.get("generator", Slots()), **RULE)
        told["generator_loss"] = -judge(seen, generate(w, batch["new_z"])).mean()
    return World(weights=moved, slots=slots, steps=steps), told


REFERENCE = Reference(
    name="wgan-gp",
    file="wgan-gp/wgan-gp.yaml",
    advance=advance,
    mutants={
        "the slope is a constant": partial(advance, recorded=False),
        "judged by the old critic": partial(advance, renewed=False),
    },
    shapes={"image": (6, 1, 8, 8)},
    losses=("critic_loss", "penalty", "generator_loss"),
    drawn=("z", "share", "new_z"),
)
