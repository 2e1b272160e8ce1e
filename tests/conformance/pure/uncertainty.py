"""Two tasks weighed by their uncertainty (Kendall, Gal, Cipolla 2018, equations 7 and 10), s = log of the variance."""

from __future__ import annotations

from functools import partial

import torch

from tests.conformance.pure.mathematics import Slots, Weights, World, adam, cross_entropy, gelu, linear, slopes
from tests.conformance.pure.reference import Reference, Tensors

MODELS = ("trunk", "name_head", "ink_head", "name_variance", "ink_variance")


def encode(w: Weights, image: torch.Tensor) -> torch.Tensor:
    """Return the code of images."""
    return gelu(linear(w, "trunk.3", gelu(linear(w, "trunk.1", image.flatten(1)))))


def find_losses(w: Weights, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of both tasks; that of squares is halved."""
    code = encode(w, batch["image"] + batch["grain"])
    ink = batch["image"].mean((1, 3))
    names = cross_entropy(linear(w, "name_head.0", code), batch["label"])
    return names, 0.5 * (linear(w, "ink_head.0", code) - ink).square().mean()


def weigh(w: Weights, batch: Tensors, *, learnt: bool, penalty: float) -> torch.Tensor:
    """Return exp(-s) L + s / 2, of both."""
    s = [w[f"{task}_variance.value"] for task in ("name", "ink")]
    factors = [torch.exp(-each if learnt else -each.detach()) for each in s]
    names, ink = find_losses(w, batch)
    return factors[0] * names + factors[1] * ink + penalty * (s[0] + s[1])


def advance(world: World, batch: Tensors, *, learnt: bool = True, penalty: float = 0.5) -> tuple[World, Tensors]:
    """Take a step of all five models."""
    w = world.weights
    loss = partial(weigh, batch=batch, learnt=learnt, penalty=penalty)
    moved, slots = adam(w, slopes(loss, w, *MODELS), world.slots.get("step", Slots()), lr=1e-3)
    names, ink = find_losses(w, batch)
    told = {"loss": loss(w), "name_loss": names, "ink_loss": ink, "ink_weight": torch.exp(-w["ink_variance.value"])}
    return World(weights=moved, slots={"step": slots}), told


REFERENCE = Reference(
    name="uncertainty",
    file="uncertainty/uncertainty.yaml",
    advance=advance,
    mutants={
        "variances that no loss holds back": partial(advance, learnt=False),
        "s in place of s / 2": partial(advance, penalty=1.0),
    },
    shapes={"image": (6, 1, 8, 8)},
    classes={"label": ((6,), 10)},
    losses=("loss", "name_loss", "ink_loss", "ink_weight"),
    drawn=("grain",),
)
