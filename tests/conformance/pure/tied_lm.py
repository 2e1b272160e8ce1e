"""A language model whose first and last matrix are one (Press and Wolf 2017), by AdamW with groups and a schedule."""

from __future__ import annotations

import math
from functools import partial

import torch

from tests.conformance.pure.mathematics import (
    Slots,
    Weights,
    World,
    cross_entropy,
    gelu,
    layer_norm,
    linear,
    moments,
    slopes,
)
from tests.conformance.pure.reference import Reference, Tensors

LR, LEAST, WARMUP, DECLINE, DECAY = 3e-3, 1e-4, 3, 5, 0.1
MATRICES = ("1.weight", "2.1.weight", "2.3.weight", "3.1.weight", "3.3.weight", "5.weight")


def guess(w: Weights, before: torch.Tensor) -> torch.Tensor:
    """Return the scores of the letter to come."""
    x = (w["table.value"][before] + w["places.value"]).flatten(1)
    x = linear(w, "body.1", x)
    for block in ("body.2", "body.3"):
        hidden = gelu(linear(w, f"{block}.1", layer_norm(w, f"{block}.0", x)))
        x = x + linear(w, f"{block}.3", hidden)
    last = w.get("output.value", w["table.value"])
    return linear(w, "body.5", layer_norm(w, "body.4", x)) @ last.T


def find_rate(count: int) -> float:
    """Return the learning rate after so many updates."""
    if count < WARMUP:
        return LR * count / WARMUP
    share = min((count - WARMUP) / DECLINE, 1.0)
    return LEAST + (LR - LEAST) * (1 + math.cos(math.pi * share)) / 2


def is_matrix(name: str) -> bool:
    """Tell whether weight decay is meant for a parameter."""
    return name.startswith("body.") and name.endswith(MATRICES)


def advance(
    world: World, batch: Tensors, *, tied: bool = True, decay_all: bool = False, longest: float = 1.0
) -> tuple[World, Tensors]:
    """Take a step of AdamW (Loshchilov and Hutter 2019), the gradient at most so long."""
    w, slots = world.weights, world.slots.get("step", Slots())

    def loss(w: Weights) -> torch.Tensor:
        seen = w if tied else {**w, "output.value": w["table.value"].detach()}
        return cross_entropy(guess(seen, batch["before"]), batch["after_it"])

    g = slopes(loss, w, "table", "places", "body")
    length = torch.cat([value.flatten() for value in g.values()]).norm()
    short = {name: value * (longest / length).clamp(max=1.0) for name, value in g.items()}
    found, ways = moments(short, slots, (0.9, 0.95))

    def move(name: str) -> torch.Tensor:
        rate = find_rate(slots.count) * (0.1 if name == "places.value" else 1.0)
        kept = 1 - rate * DECAY if decay_all or is_matrix(name) else 1.0
        return kept * w[name] - rate * ways[name]

    return World(weights={name: move(name) for name in w}, slots={"step": found}), {"loss": loss(w)}


REFERENCE = Reference(
    name="tied-lm",
    file="tied-lm/tied-lm.yaml",
    advance=advance,
    mutants={
        "the table learns as what is read alone": partial(advance, tied=False),
        "everything decays": partial(advance, decay_all=True),
        "gradients of any length": partial(advance, longest=torch.inf),
    },
    shapes={},
    classes={"before": ((6, 8), 28), "after_it": ((6,), 28)},
    losses=("loss",),
    settings=(f"vars.warmup={WARMUP}", f"vars.decline={DECLINE}"),
)
