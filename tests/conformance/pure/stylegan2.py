"""The step of StyleGAN2 (Karras et al. 2020) in the order of the published code, its penalties in some steps only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch.func import grad

from tests.conformance.pure.mathematics import Loss, Slots, Weights, World, adam, high, leaky, linear, low, slopes
from tests.conformance.pure.reference import Reference, Tensors

EVERY_G, EVERY_D = 3, 4
SHARE_G, SHARE_D = EVERY_G / (EVERY_G + 1), EVERY_D / (EVERY_D + 1)
RULES = {
    "generator": {"lr": 0.002 * SHARE_G, "betas": (0.0, 0.99**SHARE_G)},
    "discriminator": {"lr": 0.002 * SHARE_D, "betas": (0.0, 0.99**SHARE_D)},
}
MODELS = {"generator": ("mapping", "synthesis"), "discriminator": ("discriminator",)}
FOLLOW = 1 - 0.5 ** (64 / 10_000)


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the step is taken: as published, unless it says otherwise."""

    factors: tuple[float, float] = (float(EVERY_G), float(EVERY_D))
    """What a penalty that is there in some steps counts, of generator and discriminator."""
    late_fakes: bool = True
    penalised: bool = True
    one_optimizer: bool = True


PUBLISHED = Way()


def style(w: Weights, z: torch.Tensor, prefix: str = "") -> torch.Tensor:
    """Return the style of latent numbers."""
    return linear(w, f"{prefix}mapping.2", leaky(linear(w, f"{prefix}mapping.0", F.normalize(z))))


def paint(w: Weights, told: torch.Tensor) -> torch.Tensor:
    """Return images of styles."""
    hidden = F.silu(linear(w, "synthesis.2", F.silu(linear(w, "synthesis.0", told))))
    return torch.tanh(linear(w, "synthesis.4", hidden)).reshape(-1, 1, 8, 8)


def judge(w: Weights, image: torch.Tensor) -> torch.Tensor:
    """Return the discriminator's score."""
    hidden = F.silu(linear(w, "discriminator.1", image.flatten(1)))
    return linear(w, "discriminator.5", F.silu(linear(w, "discriminator.3", hidden)))


def g_loss(w: Weights, batch: Tensors) -> torch.Tensor:
    """Return the generator's loss."""
    return high(judge(w, paint(w, style(w, batch["first.z"]))))


def path_loss(w: Weights, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the penalty on path lengths, and their running mean."""
    told = style(w, batch["second.z"])
    pull = grad(lambda told: (paint(w, told) * batch["grain"]).sum())(told)
    length = pull.square().sum(1).sqrt()
    mean = w["state.path_mean"] + 0.01 * (length.mean() - w["state.path_mean"])
    return 2 * (length - mean).square().mean(), mean


def d_loss(w: Weights, batch: Tensors, fake: torch.Tensor) -> torch.Tensor:
    """Return the discriminator's loss."""
    return high(judge(w, batch["image"])) + low(judge(w, fake))


def r1(w: Weights, batch: Tensors) -> torch.Tensor:
    """Return gamma / 2 times the squared slope at real images, gamma = 10."""
    slope = grad(lambda x: judge(w, x).sum())(batch["image"])
    return 5 * slope.square().sum((1, 2, 3)).mean()


class Stepper:
    """The optimizers, which hand on what they keep."""

    def __init__(self, world: World) -> None:
        self.slots = dict(world.slots)

    def move(self, w: Weights, loss: Loss, who: str, cell: str = "") -> Weights:
        """Return the weights after a step by a loss."""
        name = cell or who
        moved, self.slots[name] = adam(w, slopes(loss, w, *MODELS[who]), self.slots.get(name, Slots()), **RULES[who])
        return moved


def advance(world: World, batch: Tensors, *, way: Way = PUBLISHED) -> tuple[World, Tensors]:
    """Move the generator, in some steps by its penalty too, then the discriminator likewise."""
    start, at, stepper = world.weights, world.steps, Stepper(world)
    told = {"step_g.loss": g_loss(start, batch)}
    w = stepper.move(start, partial(g_loss, batch=batch), "generator")
    if at % EVERY_G == 0:
        w, told["path"] = even_out(w, batch, stepper, way)
    maker = w if way.late_fakes else start
    fake = paint(maker, style(maker, batch["third.z"]))
    told["step_d.loss"] = d_loss(w, batch, fake)
    w = stepper.move(w, partial(d_loss, batch=batch, fake=fake), "discriminator")
    if at % EVERY_D == 0:
        w, told["r1"] = flatten(w, batch, stepper, way)
    return World(weights=follow(w), slots=stepper.slots, steps=at + 1), told


def even_out(w: Weights, batch: Tensors, stepper: Stepper, way: Way) -> tuple[Weights, torch.Tensor]:
    """Move the generator by its penalty, and the mean of path lengths; return the penalty too."""
    cell = "generator" if way.one_optimizer else "path"
    moved = stepper.move(w, lambda w: way.factors[0] * path_loss(w, batch)[0], "generator", cell)
    penalty, mean = path_loss(w, batch)
    return {**moved, "state.path_mean": mean}, way.factors[0] * penalty


def flatten(w: Weights, batch: Tensors, stepper: Stepper, way: Way) -> tuple[Weights, torch.Tensor]:
    """Move the discriminator by its penalty; return that too."""
    cell = "discriminator" if way.one_optimizer else "r1"
    moved = stepper.move(w, lambda w: way.factors[1] * r1(w, batch), "discriminator", cell)
    return moved if way.penalised else w, way.factors[1] * r1(w, batch)


def follow(w: Weights) -> Weights:
    """Let the averages follow."""
    slow = {name: value for name, value in w.items() if name.startswith("slow_")}
    return {**w, **{n: (1 - FOLLOW) * v + FOLLOW * w[n.removeprefix("slow_")] for n, v in slow.items()}}


LAZY = Reference(
    name="stylegan2-lazy",
    file="stylegan2-lazy/stylegan2-lazy.yaml",
    advance=advance,
    mutants={
        "penalties count once": partial(advance, way=Way(factors=(1.0, 1.0))),
        "fakes of the old generator": partial(advance, way=Way(late_fakes=False)),
        "a penalty that moves nothing": partial(advance, way=Way(penalised=False)),
        "penalties by optimizers of their own": partial(advance, way=Way(one_optimizer=False)),
    },
    shapes={"image": (6, 1, 8, 8)},
    losses=("step_g.loss", "step_d.loss", "path", "r1"),
    drawn=("first.z", "second.z", "third.z", "grain"),
    settings=(f"vars.every_d={EVERY_D}", f"vars.every_g={EVERY_G}"),
)
ONCE = replace(
    LAZY,
    name="stylegan2-lazy without factors",
    advance=partial(advance, way=Way(factors=(1.0, 1.0))),
    mutants={"penalties count as often as steps": advance},
    settings=(*LAZY.settings, "ops.r1.lazy=none", "ops.path.lazy=none"),
)
FACTORS = replace(
    LAZY,
    name="stylegan2-factors",
    file="stylegan2-lazy/stylegan2-factors.yaml",
    settings=(*LAZY.settings, f"vars.weight_d={320.0 * EVERY_D}", f"vars.weight_g={2.0 * EVERY_G}"),
)
