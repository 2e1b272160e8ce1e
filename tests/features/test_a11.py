"""Nothing is modified in place while a gradient needs it: where no order is right, the compiler says so."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load

CIRCLE = """
graphspec: 1
name: circle
inputs: {x: {shape: [batch, 4]}}
models:
  g: {layers: [{linear: 4}], optimizer: sgd}
  d: {layers: [{linear: 4}, tanh, {linear: 4}], optimizer: sgd}
ops:
  fake: {forward: g, inputs: x}
  before: {forward: d, inputs: fake, after: []}
  d_loss: {loss: mse, inputs: [before, 0.0]}
  step_d: {update: d, loss: d_loss}
  behind: {forward: d, inputs: x, after: step_d}
  g_loss: {loss: mse, inputs: [before, behind]}
  step_g: {update: g, loss: g_loss}
"""


def test_where_no_order_is_right_both_versions_are_named() -> None:
    with pytest.raises(SpecError, match=r"(?s)E-TWO-VERSIONS.*d\.params@0"):
        compile_step(load(CIRCLE), "torch")


def test_a_clone_or_a_tape_makes_it_possible() -> None:
    assert compile_step(load(CIRCLE, ["ops.before.snapshot=true"]), "torch").program.backend == "torch"
    assert compile_step(load(CIRCLE), "tensorflow").program.backend == "tensorflow"
