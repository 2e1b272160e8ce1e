"""Losses of overlaps, densities, distances and alignments: published numbers, and steps beside PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphspec import SpecError
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: learnt
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 4]}, z: {shape: [batch, 4]}, n: {shape: [batch, 4], dtype: int64}}
models: {net: {layers: [{linear: {out: 4, bias: false}}], optimizer: {name: sgd, lr: 0.5}}}
ops:
  out: {forward: net, inputs: x}
  chances: {call: sigmoid, inputs: out}
  aim: {call: sigmoid, inputs: y}
  spread: {call: exp, inputs: out}
  each: LOSS
  fit: {call: mean, inputs: each}
  step: {update: net, loss: fit}
outputs: [each, fit]
"""
RANDOM = np.random.default_rng(7)
WEIGHT = RANDOM.normal(size=(4, 3))
BATCH = {
    "x": RANDOM.normal(size=(5, 3)),
    "y": RANDOM.normal(size=(5, 4)),
    "z": RANDOM.normal(size=(5, 4)),
    "n": RANDOM.integers(0, 4, size=(5, 4)),
}


def focal(out: torch.Tensor, aim: torch.Tensor, how: str) -> torch.Tensor:
    """Return torchvision's sigmoid_focal_loss with its defaults, written out."""
    p = out.sigmoid()
    p_t = p * aim + (1 - p) * (1 - aim)
    every = F.binary_cross_entropy_with_logits(out, aim, reduction="none") * (1 - p_t) ** 2
    return reduced((0.25 * aim + 0.75 * (1 - aim)) * every, how)


def dice(p: torch.Tensor, t: torch.Tensor, how: str) -> torch.Tensor:
    """Return one minus twice the shared part by all of both, sample by sample."""
    return reduced(torch.stack([1 - 2 * a @ b / (a.sum() + b.sum()) for a, b in zip(p, t, strict=True)]), how)


def reduced(every: torch.Tensor, how: str) -> torch.Tensor:
    """Return the losses, their sum or their mean."""
    return every if how == "none" else every.sum() if how == "sum" else every.mean()


Reference = Callable[[torch.Tensor, Mapping[str, torch.Tensor], str], torch.Tensor]
LOSSES: dict[str, tuple[str, Reference]] = {
    "focal": ("loss: focal, inputs: [out, aim]", lambda out, b, how: focal(out, b["y"].sigmoid(), how)),
    "dice": (
        "loss: dice, inputs: [chances, aim], args: {smooth: 1.0e-12}",
        lambda out, b, how: dice(out.sigmoid(), b["y"].sigmoid(), how),
    ),
    "gaussian_nll": (
        "loss: gaussian_nll, inputs: [out, y, spread]",
        lambda out, b, how: F.gaussian_nll_loss(out, b["y"], out.exp(), reduction=how),
    ),
    "gaussian_nll-number": (
        "loss: gaussian_nll, inputs: [out, y, 0.3], args: {full: true}",
        lambda out, b, how: F.gaussian_nll_loss(out, b["y"], torch.full_like(out, 0.3), full=True, reduction=how),
    ),
    "poisson_nll": (
        "loss: poisson_nll, inputs: [out, n], args: {full: true}",
        lambda out, b, how: F.poisson_nll_loss(out, b["n"].double(), full=True, reduction=how),
    ),
    "poisson_nll-rate": (
        "loss: poisson_nll, inputs: [spread, n], args: {log_input: false}",
        lambda out, b, how: F.poisson_nll_loss(out.exp(), b["n"].double(), log_input=False, reduction=how),
    ),
    "triplet_margin": (
        "loss: triplet_margin, inputs: [out, y, z], args: {swap: true}",
        lambda out, b, how: F.triplet_margin_loss(out, b["y"], b["z"], swap=True, reduction=how),
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_step_is_that_of_pytorchs_function_also_in_micro_batches(
    name: str, reduction: str, parts: int, backend: str
) -> None:
    written, reference = LOSSES[name]
    text = SPEC.replace("LOSS", f"{{{written}, reduction: {reduction}}}")
    if reduction != "none":
        text = text.replace("  fit: {call: mean, inputs: each}\n", "").replace("loss: fit", "loss: each")
        text = text.replace("outputs: [each, fit]", "outputs: [each]")
    step = build_step(text, backend, [f"micro_batches={parts}"])
    set_weights(step, {"net.0.weight": WEIGHT})
    found = step.numpy(step(BATCH)["each"])

    given = {key: torch.tensor(value) for key, value in BATCH.items()}
    weight = torch.tensor(WEIGHT, requires_grad=True)
    every = reference(given["x"] @ weight.T, given, reduction)
    (slope,) = torch.autograd.grad(every.mean(), weight)
    assert np.allclose(found, every.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.5 * slope.numpy(), rtol=1e-10, atol=1e-12)


HEARD = """
graphspec: 1
name: heard
inputs:
  x: {shape: [batch, 3]}
  text: {shape: [batch, 2], dtype: int64}
  times: {shape: [batch], dtype: int64}
  lengths: {shape: [batch], dtype: int64}
models: {net: {layers: [{linear: {out: 12, bias: false}}, {reshape: [4, 3]}], optimizer: {name: sgd, lr: 0.5}}}
ops:
  heard: {forward: net, inputs: x}
  cost: {loss: ctc, inputs: [heard, text, times, lengths], args: {blank: 2}, reduction: HOW}
  step: {update: net, loss: cost}
outputs: [cost]
"""
SPOKEN = {
    "x": BATCH["x"],
    "text": np.array([[0, 1], [1, 1], [1, 0], [0, 0], [1, 0]]),
    "times": np.array([4, 3, 4, 2, 3]),
    "lengths": np.array([2, 2, 1, 0, 1]),
}


def align(chances: torch.Tensor, wanted: tuple[int, ...], blank: int) -> torch.Tensor:
    """Return -log of the probability of all ways to say a text in [time, classes]: the sum over each of them."""
    times, classes = chances.shape
    ways = [
        torch.stack([chances[time, each] for time, each in enumerate(way)]).prod()
        for way in product(range(classes), repeat=times)
        if tuple(each for each, _ in groupby(way) if each != blank) == wanted
    ]
    return -torch.stack(ways).sum().log()


@pytest.mark.sample(3)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ctc_is_the_sum_over_all_alignments(reduction: str, parts: int, backend: str) -> None:
    step = build_step(HEARD.replace("HOW", reduction), backend, [f"micro_batches={parts}"])
    weight = RANDOM.normal(size=(12, 3))
    set_weights(step, {"net.0.weight": weight})
    found = step.numpy(step(SPOKEN)["cost"])

    known = torch.tensor(weight, requires_grad=True)
    chances = (torch.tensor(SPOKEN["x"]) @ known.T).reshape(5, 4, 3).softmax(-1)
    texts = [tuple(text[:length]) for text, length in zip(SPOKEN["text"].tolist(), SPOKEN["lengths"], strict=True)]
    losses = [align(chances[row, : SPOKEN["times"][row]], text, 2) for row, text in enumerate(texts)]
    shares = [loss / max(len(text), 1) for loss, text in zip(losses, texts, strict=True)]
    cost = torch.stack(losses).sum() if reduction == "sum" else torch.stack(shares).mean()
    (slope,) = torch.autograd.grad(cost, known)
    assert np.isclose(found, cost.item(), rtol=1e-10)
    assert np.allclose(weights(step)["net.0.weight"], weight - 0.5 * slope.numpy(), rtol=1e-10, atol=1e-12)


ALONE = """
graphspec: 1
name: alone
inputs: {x: {shape: SHAPE}, y: {shape: SHAPE}}
ops: {each: {loss: LOSS, inputs: [x, y], reduction: none}}
outputs: [each]
"""


def test_dice_has_the_numbers_of_keras(backend: str) -> None:
    """Those of the documentation of ``keras.losses.Dice(axis=(1, 2, 3), reduction=None)``."""
    true = np.array([[[[1.0], [1.0]], [[0.0], [0.0]]], [[[1.0], [1.0]], [[0.0], [0.0]]]])
    predicted = np.array([[[[0.0], [1.0]], [[0.0], [1.0]]], [[[0.4], [0.0]], [[0.0], [0.9]]]])
    step = build_step(ALONE.replace("SHAPE", "[batch, 2, 2, 1]").replace("LOSS", "dice"), backend)
    found = step.numpy(step({"x": predicted, "y": true})["each"])
    assert np.allclose(found, [0.5, 0.75757575], atol=1e-7)


def test_what_is_right_already_counts_less_as_lin_et_al_say(backend: str) -> None:
    """With a gamma of 2 an example classified with 0.9 has a loss 100 times lower, with 0.968 about 1000 times."""
    step = build_step(ALONE.replace("SHAPE", "[batch]").replace("LOSS", "focal, args: {alpha: 0.5}"), backend)
    p = np.array([0.9, 0.968])
    found = np.asarray(step({"x": np.log(p / (1 - p)), "y": np.ones(2)})["each"])
    assert np.allclose(-np.log(p) / (2 * found), [100, 1000], rtol=0.03)


OPEN = """
graphspec: 1
name: open
inputs: {a: {}, b: {}, c: {}}
ops: {cost: {loss: LOSS, inputs: [a, b, c]}}
outputs: [cost]
"""


@pytest.mark.parametrize("loss", ["triplet_margin", "gaussian_nll"])
def test_three_operands_of_shapes_that_the_step_knows_must_be_equal(loss: str, backend: str) -> None:
    step = build_step(OPEN.replace("LOSS", loss), backend)
    rows = np.abs(BATCH["y"]) + 0.1
    assert np.isfinite(step.numpy(step({"a": rows, "b": rows + 1, "c": rows})["cost"]))
    for wrong in ("b", "c"):
        with pytest.raises(SpecError, match="do not fit"):
            step({"a": rows, "b": rows, "c": rows, wrong: rows[:, :1]})
