"""Adversarial training by the fast gradient sign method (Goodfellow et al. 2015, section 6)."""

from __future__ import annotations

from functools import partial

import torch
from torch.func import grad

from tests.conformance.pure.mathematics import Slots, Weights, World, adam, cross_entropy, gelu, linear, slopes
from tests.conformance.pure.reference import Reference, Tensors


def classify(w: Weights, image: torch.Tensor) -> torch.Tensor:
    """Return the scores of ten classes."""
    hidden = gelu(linear(w, "classifier.1", image.flatten(1)))
    return linear(w, "classifier.5", gelu(linear(w, "classifier.3", hidden)))


def attack(w: Weights, image: torch.Tensor, label: torch.Tensor, *, signed: bool, bound: float) -> torch.Tensor:
    """Return worse images, as far as a quarter away in every pixel."""
    slope = grad(lambda x: cross_entropy(classify(w, x), label))(image)
    return (image + 0.25 * (slope.sign() if signed else slope)).clamp(-bound, bound)


def advance(
    world: World, batch: Tensors, *, signed: bool = True, bound: float = 1.0, mixed: bool = True
) -> tuple[World, Tensors]:
    """Take a step by half the loss at the images and half of that at worse ones."""
    w, image, label = world.weights, batch["image"], batch["label"]
    worse = attack(w, image, label, signed=signed, bound=bound)

    def clean_loss(w: Weights) -> torch.Tensor:
        return cross_entropy(classify(w, image), label)

    def worse_loss(w: Weights) -> torch.Tensor:
        return cross_entropy(classify(w, worse), label)

    def loss(w: Weights) -> torch.Tensor:
        return 0.5 * clean_loss(w) + 0.5 * worse_loss(w) if mixed else worse_loss(w)

    moved, slots = adam(w, slopes(loss, w, "classifier"), world.slots.get("step", Slots()), lr=1e-3)
    told = {"loss": loss(w), "clean_loss": clean_loss(w), "worse_loss": worse_loss(w)}
    return World(weights=moved, slots={"step": slots}), told


REFERENCE = Reference(
    name="fgsm",
    file="fgsm/fgsm.yaml",
    advance=advance,
    mutants={
        "along the slope, not its sign": partial(advance, signed=False),
        "beyond the range of images": partial(advance, bound=torch.inf),
        "worse images alone": partial(advance, mixed=False),
    },
    shapes={"image": (6, 1, 8, 8)},
    classes={"label": ((6,), 10)},
    losses=("loss", "clean_loss", "worse_loss"),
)
