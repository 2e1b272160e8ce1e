"""A loss may be made of transformed gradients: its own gradient goes through the transforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphspec import SpecError
from tests.features.mixing import mix
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: twice
inputs: {x: {shape: []}}
models:
  v: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
  w: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
ops:
  a: {forward: v}
  b: {forward: w}
  one: {call: mul, inputs: [a, a, b]}
  other: {call: mul, inputs: [a, b, b, x]}
  of_one: {gradient: one, wrt: [v, w]}
  of_other: {gradient: other, wrt: [v, w]}
  changed: {TRANSFORM}
  total: {call: "tests.features.mixing:mix", inputs: changed}
  step: {update: [v, w], loss: total}
outputs: [total]
"""


def dot(a, b):
    """Return the inner product of two sets of numbers."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def project(a, b):
    """Return a set without what is against another."""
    share = dot(a, b) / dot(b, b) if dot(a, b) < 0 else 0.0
    return [x - share * y for x, y in zip(a, b, strict=True)]


def clip_agc(a, values):
    """Return gradients that are at most half as long as weights, which are constants and positive."""
    limits = [0.5 * value for value in values]
    return [x / abs(x) * most if abs(x) > most else x for x, most in zip(a, limits, strict=True)]


MEANINGS = {
    "transform: project, inputs: [of_one, of_other]": lambda a, b, values: project(a, b),
    "transform: pcgrad, inputs: [of_one, of_other]": lambda a, b, values: [
        x + y for x, y in zip(project(a, b), project(b, a), strict=True)
    ],
    "transform: normalize, inputs: of_one": lambda a, b, values: [x / dot(a, a) ** 0.5 for x in a],
    "transform: clip_norm, inputs: of_one, args: {norm: 0.5}": lambda a, b, values: [
        x * 0.5 / dot(a, a) ** 0.5 for x in a
    ],
    "transform: clip_agc, inputs: of_one, args: {clipping: 0.5}": lambda a, b, values: clip_agc(a, values),
    "transform: scale, inputs: of_one, args: {factor: -2.0}": lambda a, b, values: [-2.0 * x for x in a],
    "call: sub, inputs: [of_one, of_other]": lambda a, b, values: [x - y for x, y in zip(a, b, strict=True)],
}


@pytest.mark.parametrize("transform", MEANINGS)
def test_a_step_through_a_transform_is_that_of_pytorchs_double_backward(transform, backend):
    step = build_step(SPEC.replace("TRANSFORM", transform), backend)
    set_weights(step, {"v.value": 0.7, "w.value": 1.1})
    step({"x": np.array(-2.0)})
    values = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.7, 1.1)]
    v, w = values
    one, other = (torch.autograd.grad(each, values, create_graph=True) for each in (v * v * w, v * w * w * -2.0))
    slopes = torch.autograd.grad(mix(MEANINGS[transform](one, other, (0.7, 1.1))), values)
    for name, value, slope in zip(("v.value", "w.value"), values, slopes, strict=True):
        assert np.allclose(weights(step)[name], (value - 0.1 * slope).item(), rtol=1e-12)


def test_a_clip_by_weights_is_no_way_back_to_them(backend):
    stopped = SPEC.replace("wrt: [v, w]}", "wrt: [v, w], stop: true}", 1)
    with pytest.raises(SpecError, match="E-NO-GRADIENT"):
        build_step(stopped.replace("TRANSFORM", "transform: clip_agc, inputs: of_one"), backend)
