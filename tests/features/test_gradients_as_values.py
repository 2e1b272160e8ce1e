"""Gradients with respect to models or values are values, of any order; the compiler infers what to record."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.steps import build_step

pytestmark = pytest.mark.row("A12")

SQUARE = """
graphspec: 1
name: square
inputs: {x: {shape: [batch]}}
ops:
  cost: {call: mul, inputs: [x, x]}
  total: {call: sum, inputs: cost}
  slope: {gradient: total, wrt: x}
  slopes: {call: sum, inputs: slope}
  bend: {gradient: slopes, wrt: x}
outputs: [slope, bend]
"""
ATTACK = """
graphspec: 1
name: fast-gradient-sign
inputs: {x: {shape: [batch]}}
ops:
  cost: {call: mul, inputs: [x, x]}
  total: {call: sum, inputs: cost}
  slope: {gradient: total, wrt: x, stop: true}
  way: {call: sign, inputs: slope}
  noise: {call: mul, inputs: [way, 0.01]}
  moved: {call: add, inputs: [x, noise]}
  seen: {call: clip, inputs: moved, args: {min: 1.0, max: 4.0}}
outputs: [seen]
"""


def test_first_and_second_slopes_of_a_square(backend: str) -> None:
    step = build_step(SQUARE, backend)
    found = step({"x": np.array([1.0, 2.0, 3.0])})
    assert np.allclose(step.numpy(found["slope"]), [2, 4, 6])
    assert np.allclose(step.numpy(found["bend"]), [2, 2, 2])


def test_the_inner_gradient_is_recorded_because_another_differentiates_it() -> None:
    graphs = compile_step(load(SQUARE)).graphs.values()
    assert {each.subject for graph in graphs for each in graph.decisions if each.code == "CREATE_GRAPH"} == {"slope"}


def test_an_attack_by_the_sign_of_the_gradient_stays_within_bounds(backend: str) -> None:
    step = build_step(ATTACK, backend)
    found = step({"x": np.array([1.0, 2.0, 4.0])})
    assert np.allclose(step.numpy(found["seen"]), [1.01, 2.01, 4.0])


STOPPED = """
graphspec: 1
name: stopped
inputs: {y: {shape: [batch, 2]}}
models: {w: {parameter: {shape: [2], init: 1.0}, optimizer: sgd}}
ops:
  held: {call: stop, inputs: y}
  scaled: {forward: w}
  cost: {expr: "sum(held * held + 3 * y)"}
  slope: {gradient: cost, wrt: held}
  step: {update: w, loss: "sum(scaled * slope)"}
outputs: [slope]
"""


def test_a_gradient_by_a_stopped_input_leaves_out_the_input_itself(backend: str) -> None:
    step = build_step(STOPPED, backend)
    y = np.array([[0.5, -1.0], [2.0, 0.25]])
    assert np.allclose(step.numpy(step({"y": y})["slope"]), 2 * y)
