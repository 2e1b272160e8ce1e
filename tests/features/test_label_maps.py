"""A label as a map: `expand` in a conditional GAN's discriminator, against a loop by hand in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: maps
inputs: {image: {shape: [batch, 1, 4, 4]}, label: {shape: [batch], dtype: int64}}
models: {d: {layers: [{conv2d: {out: 2, kernel: 3}}, tanh, flatten, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  hot: {call: one_hot, inputs: label, args: {classes: 3}}
  map: {expr: "expand(hot[:, :, None, None], shape=[-1, -1, 4, 4])"}
  both: {call: concat, inputs: [image, map]}
  score: {forward: d, inputs: both}
  real: {loss: bce_with_logits, inputs: [score, 1.0]}
  step: {update: d, loss: real}
outputs: [real, map]
"""


def train_by_hand(start, image, label):
    """Return the losses of three steps: the map is written into a tensor of zeros, class by class."""
    kernel, bias, matrix, offset = (torch.tensor(each, requires_grad=True) for each in start)
    hot = torch.zeros(len(label), 3, 4, 4, dtype=torch.float64)
    for row, number in enumerate(label):
        hot[row, number] = 1.0
    losses = []
    for _ in range(3):
        inner = torch.tanh(functional.conv2d(torch.cat([torch.tensor(image), hot], 1), kernel, bias))
        loss = functional.softplus(-(inner.flatten(1) @ matrix.T + offset)).mean()
        gradients = torch.autograd.grad(loss, (kernel, bias, matrix, offset))
        with torch.no_grad():
            for each, slope in zip((kernel, bias, matrix, offset), gradients, strict=True):
                each -= 0.1 * slope
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("more", ["", "micro_batches: 3\n"])
def test_a_label_becomes_a_map(backend, more):
    rng = np.random.default_rng(0)
    image, label = rng.normal(size=(6, 1, 4, 4)), np.array([0, 1, 2, 2, 1, 0])
    step = build_step(SPEC + more, backend)
    held = weights(step)
    names = ("0.weight", "0.bias", "3.weight", "3.bias")
    expected = train_by_hand([held[f"d.{name}"] for name in names], image, label)
    found = [step({"image": image, "label": label}) for _ in range(3)]
    np.testing.assert_allclose([step.numpy(each["real"]) for each in found], expected, rtol=1e-9)
    assert step.numpy(found[0]["map"])[2].sum(axis=(1, 2)).tolist() == [0, 0, 16]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("[-1, 5, 4, 4]", "found `5` in `shape`, expected 3 or -1 for axis 1"),
        ("[-1, 3, 4]", "a size for every axis of [batch, 3, 1, 1]"),
        ("[-1, -1, 0, 4]", "sizes from 1 up, or -1"),
    ],
)
def test_what_is_not_of_size_one_is_not_repeated(shape, words):
    with pytest.raises(SpecError) as raised:
        compile_step(load(SPEC.replace("shape=[-1, -1, 4, 4]", f"shape={shape}")))
    assert words in str(raised.value)
