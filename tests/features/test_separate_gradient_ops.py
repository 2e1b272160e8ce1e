"""Taking, combining and applying gradients are separate ops: a gradient used twice is not summed twice."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.overflows import SPEC, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("C3")

TWICE = SPEC.replace(
    "{update: v, loss: cost}",
    "{update: v, gradients: slopes}\n"
    "  slopes: {gradient: cost, wrt: v}\n"
    "  short: {transform: clip_norm, inputs: slopes, args: {norm: 1.0}}\n"
    "  again: {call: add, inputs: [slopes, slopes]}\n"
    "  shadow: {update: w, gradients: [moved], optimizer: {name: sgd, lr: 1.0}}\n"
    "  other: {forward: w}\n"
    "  pull: {call: mul, inputs: [other, slope]}\n"
    "  draw: {call: sum, inputs: pull}\n"
    "  moved: {gradient: draw, wrt: w}",
).replace("  v: {", "  w: {parameter: {shape: [2], init: 0.0}}\n  v: {")


def test_a_gradient_that_several_ops_read_is_applied_as_it_was_taken(backend: str) -> None:
    step = made(backend, ["precision.loss_scale=none"], text=TWICE)
    for _ in range(3):
        give(step, [3.0, 4.0])
    assert weights(step)["v.value"].tolist() == [-9.0, -12.0]  # Gluon adds again what is reduced again
    assert weights(step)["w.value"].tolist() == [-9.0, -12.0]


def test_a_window_takes_each_step_in_once_whoever_reads_it(backend: str) -> None:
    text = SPEC.replace("{update: v, loss: cost}", "{update: v, gradients: both, accumulate: {steps: 2, reduce: sum}}")
    text = text.replace(
        "  step:",
        "  slopes: {gradient: cost, wrt: v}\n  half: {call: mul, inputs: [slopes, 0.5]}\n"
        "  both: {call: add, inputs: [half, slopes]}\n  step:",
    )
    step = made(backend, ["precision.loss_scale=none"], text=text)
    for slope in (1.0, 3.0):
        give(step, slope)
    assert np.allclose(weights(step)["v.value"], -1.5 * 4.0)
    functions = compile_step(load(text), backend).to_json()["functions"]
    gathers = [each for each in functions[-1]["instructions"] if each["kind"] == "accumulate"]
    assert [each["inputs"] for each in gathers] == [["slopes"]]


@pytest.mark.needs("torch")
def test_nothing_is_left_in_a_parameter_for_the_next_to_find() -> None:
    step = made("torch", ["precision.loss_scale=none"], text=TWICE)
    give(step, 1.0)
    assert all(p.grad is None for model in step.models.values() for p in model.parameters())
