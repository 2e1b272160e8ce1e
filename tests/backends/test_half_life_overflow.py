"""Half-lives where updates can be held back: they count the updates that took place, or are refused."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: half-life
precision: {loss_scale: {initial: 4}}
inputs: {x: {shape: [batch]}, y: {shape: [batch]}}
models:
  a: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  b: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: a}
ops:
  wa: {forward: a}
  product_a: {call: mul, inputs: [x, wa]}
  loss_a: {call: mean, inputs: product_a}
  step_a: {update: a, loss: loss_a, on_overflow: POLICY}
  wb: {forward: b}
  product_b: {call: mul, inputs: [y, wb]}
  loss_b: {call: mean, inputs: product_b}
  step_b: {update: b, loss: loss_b, every: 3, on_overflow: POLICY}
  follow: {ema: a, into: slow, half_life: 1 updates, every: EVERY}
"""


def written(policy: str = "own", every: str = "step_b") -> str:
    return SPEC.replace("POLICY", policy).replace("EVERY", every).lstrip()


@pytest.mark.parametrize("policy", ["own", "group", "all"])
def test_a_half_life_over_the_steps_of_an_update_that_can_be_held_is_refused(policy):
    with pytest.raises(
        SpecError, match=r"E-INTERVAL.*how often 'a' is written between two firings of 'follow'"
    ) as raised:
        compile_step(load(written(policy)))
    assert "`every: 2`, which counts the updates that took place" in (raised.value.diagnostics[0].help or "")


@pytest.mark.parametrize("text", [written("apply"), written("error"), written("own", "step_a"), written("own", "2")])
def test_a_half_life_over_a_known_number_of_updates_is_accepted(text):
    compile_step(load(text))


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_number_counts_the_updates_that_took_place(backend):
    """The second and third steps are held: the average is taken in the fourth and sixth, with a share of 1/4 kept."""
    step, kept = build_step(written("own", "2"), backend), []
    for slope in (1.0, np.inf, np.inf, 1.0, 1.0, 1.0):
        step({"x": np.array([slope]), "y": np.array([1.0])})
        kept.append(float(np.asarray(weights(step)["slow.value"])))
    assert kept == [0.0, 0.0, 0.0, -1.5, -1.5, -3.375]
