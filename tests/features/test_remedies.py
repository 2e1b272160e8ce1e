"""Mistakes whose message names what to write: an axis, `requires_grad`, a tuple of gradients."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from tests.features.steps import build_step

WORDS = """
graphspec: 1
name: words
inputs: {x: {shape: [batch, TIME, 5]}, y: {shape: [batch, TIME], dtype: int64}}
ops:
  fit: {loss: cross_entropy, inputs: [x, y]}
outputs: [fit]
"""


def test_a_vocabulary_on_the_last_axis_names_the_axis() -> None:
    with pytest.raises(SpecError, match=r"(?s)E-SHAPE.*write `args: {axis: -1}`"):
        compile_step(load(WORDS.replace("TIME", "7")))


def test_it_does_where_the_length_is_free(backend: str) -> None:
    step = build_step(WORDS.replace("TIME", "time"), backend)
    with pytest.raises(SpecError, match=r"classes on the last axis are `axis: -1`"):
        step({"x": np.ones((2, 3, 5)), "y": np.zeros((2, 3), np.int64)})
    last = build_step(WORDS.replace("TIME", "time").replace("[x, y]", "[x, y], args: {axis: -1}"), backend)
    found = last({"x": np.ones((2, 3, 5)), "y": np.zeros((2, 3), np.int64)})["fit"]
    assert float(np.asarray(found)) == pytest.approx(np.log(5))


GIVEN = """
graphspec: 1
name: frozen
inputs: {x: {shape: [batch, 4]}}
models: {net: {MADE, optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: fit}
"""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("made", ['class: "given:Net"', "layers: [{linear: 2}]"])
def test_a_given_module_that_is_frozen_whole_names_requires_grad(made: str) -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(4, 2)).requires_grad_(False)
    with pytest.raises(SpecError, match=r"has `requires_grad`|requires_grad_\(True\)"):
        build(compile_step(load(GIVEN.replace("MADE", made))), device="cpu", models={"net": net})


def test_a_call_on_a_gradient_set_says_that_it_gets_a_tuple(backend: str) -> None:
    text = GIVEN.replace("MADE", "layers: [{linear: 2}]").replace("loss: fit}", "gradients: slopes}")
    text += '  slopes: {gradient: fit, wrt: net}\n  size: {call: "tests.features.columns:column", inputs: slopes}\n'
    with pytest.raises(SpecError, match="'slopes' is a gradient set: your function gets a tuple"):
        build_step(text + "outputs: [size]\n", backend)
