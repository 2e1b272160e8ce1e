"""The references that several entries share: a GAN whose players move, and a critic with its policy."""

from __future__ import annotations

import torch

from tests.catalogue.mathematics import World, descend, high, low, mlp, mse


def at_the_start(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move both players of a GAN, each judged by the other as it was."""
    g, d = world["g"], world["d"]
    fake = mlp(g, z)
    return {
        "g": descend(lambda g: high(mlp(d, mlp(g, z))), g),
        "d": descend(lambda d: high(mlp(d, image)) + low(mlp(d, fake)), d),
    }


def judged_by_the_new(world: World, image: torch.Tensor, z: torch.Tensor) -> World:
    """Move the discriminator, then the generator, judged by the discriminator that has moved."""
    d = at_the_start(world, image, z)["d"]
    return {"g": descend(lambda g: high(mlp(d, mlp(g, z))), world["g"]), "d": d}


def all_losses_first(world: World, state: torch.Tensor, action: torch.Tensor, target: torch.Tensor) -> World:
    """Move critic and policy, both gradients taken at the weights of the start."""
    policy, critic = world["policy"], world["critic"]
    return {
        "policy": descend(lambda p: -mlp(critic, torch.cat([state, mlp(p, state)], 1)).mean(), policy),
        "critic": descend(lambda q: mse(mlp(q, torch.cat([state, action], 1)), target), critic),
    }
