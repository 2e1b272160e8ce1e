"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, algorithm 1 of the second version)."""

from __future__ import annotations

import math
from functools import partial

import torch

from tests.conformance.pure.mathematics import Slots, Weights, World, adam, linear, slopes
from tests.conformance.pure.reference import Reference, Tensors

ENTROPY = -1.0
CRITICS = ("critic_1", "critic_2")


def mlp(w: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    """Return what a net with two hidden layers makes of x."""
    hidden = linear(w, f"{name}.2", linear(w, f"{name}.0", x).clamp(min=0)).clamp(min=0)
    return linear(w, f"{name}.4", hidden)


def act(w: Weights, state: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions, and the logarithm of their density."""
    middle, log_spread = mlp(w, "actor", state).chunk(2, 1)
    log_spread = log_spread.clamp(-20, 2)
    action = torch.tanh(middle + log_spread.exp() * noise)
    normal = -0.5 * noise.square() - log_spread - 0.5 * math.log(2 * math.pi)
    return action, normal - torch.log(1 - action.square() + 1e-6)


def least(w: Weights, names: tuple[str, ...], state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return what the most doubtful of some critics expects."""
    return torch.stack([mlp(w, name, torch.cat([state, action], 1)) for name in names]).amin(0)


def critic_loss(w: Weights, start: Weights, batch: Tensors) -> torch.Tensor:
    """Return the squared errors of both critics; their goal is that of the weights at the start."""
    action, log_p = act(start, batch["next_state"], batch["next.noise"])
    late = least(start, ("late_critic_1", "late_critic_2"), batch["next_state"], action)
    worth = late - start["log_temperature.value"].exp() * log_p
    goal = batch["reward"] + 0.98 * (1 - batch["done"]) * worth
    pair = torch.cat([batch["state"], batch["action"]], 1)
    return sum((mlp(w, name, pair) - goal).square().mean() for name in CRITICS)


def actor_loss(w: Weights, batch: Tensors, alpha: torch.Tensor, judges: tuple[str, ...]) -> torch.Tensor:
    """Return the price of certainty, less what the actions are worth."""
    action, log_p = act(w, batch["state"], batch["now.noise"])
    return (alpha * log_p - least(w, judges, batch["state"], action)).mean()


def alpha_loss(w: Weights, log_p: torch.Tensor) -> torch.Tensor:
    """Return what falls with the temperature while there is more entropy than is wanted."""
    return -(w["log_temperature.value"].exp() * (log_p + ENTROPY)).mean()


def advance(
    world: World, batch: Tensors, *, renewed: bool = True, prompt: bool = False, judges: tuple[str, ...] = CRITICS
) -> tuple[World, Tensors]:
    """Move critics, actor, temperature and targets; the actor is judged by the critics that have moved."""
    w, slots = world.weights, dict(world.slots)

    def move(weights: Weights, g: Weights, name: str) -> Weights:
        moved, slots[name] = adam(weights, g, slots.get(name, Slots()), lr=3e-4)
        return moved

    critics = partial(critic_loss, start=w, batch=batch)
    _, log_p = act(w, batch["state"], batch["now.noise"])
    judged = move(w, slopes(critics, w, *CRITICS), "critics")
    seen = judged if renewed else w
    cooled = move(judged, slopes(partial(alpha_loss, log_p=log_p), w, "log_temperature"), "alpha")
    alpha = (cooled if prompt else w)["log_temperature.value"].exp()
    actor = partial(actor_loss, batch=batch, alpha=alpha, judges=judges)
    moved = move(cooled, slopes(actor, seen, "actor"), "actor")
    told = {
        "step_critics.loss": critics(w),
        "step_actor.loss": actor(seen),
        "step_alpha.loss": alpha_loss(w, log_p),
    }
    return World(weights=follow(moved), slots=slots), told


def follow(w: Weights) -> Weights:
    """Let the targets follow the critics."""
    late = {name: value for name, value in w.items() if name.startswith("late_")}
    return {**w, **{name: 0.995 * value + 0.005 * w[name.removeprefix("late_")] for name, value in late.items()}}


REFERENCE = Reference(
    name="sac",
    file="sac/sac.yaml",
    advance=advance,
    mutants={
        "judged by the old critics": partial(advance, renewed=False),
        "weighed by the new temperature": partial(advance, prompt=True),
        "judged by one critic": partial(advance, judges=("critic_1",)),
    },
    shapes={"state": (6, 3), "action": (6, 1), "reward": (6, 1), "next_state": (6, 3), "done": (6, 1)},
    losses=("step_critics.loss", "step_actor.loss", "step_alpha.loss"),
    drawn=("next.noise", "now.noise"),
)
