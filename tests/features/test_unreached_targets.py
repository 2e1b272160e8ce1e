"""A loss that reaches no target is reported before anything runs."""

from __future__ import annotations

import pytest

from graphspec import SpecError
from tests.features.steps import build_step

pytestmark = pytest.mark.row("D9")

SPEC = """
graphspec: 1
name: apart
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: 2}], optimizer: sgd}
  b: {layers: [{linear: 2}], optimizer: sgd}
ops:
  y: {forward: a, inputs: x}
  z: {forward: b, inputs: x}
  cost: {loss: mse, inputs: [y, x]}
"""


@pytest.mark.parametrize("op", ["{update: b, loss: cost}", "{update: [a, b], loss: cost}", "{gradient: cost, wrt: b}"])
def test_no_gradient_is_an_error_of_the_spec(op: str, backend: str) -> None:
    with pytest.raises(SpecError, match="E-NO-GRADIENT"):
        build_step(f"{SPEC}  step: {op}\n", backend)


def test_a_parameter_that_the_loss_does_not_reach_is_named(backend: str) -> None:
    classes = "{torch: 'tests.features.unused:Torch', tensorflow: 'tests.features.unused:TensorFlow'}"
    unused = SPEC.replace("a: {layers: [{linear: 2}]", f"a: {{class: {classes}")
    with pytest.raises(SpecError, match=r"(?s)GS212.*a\.idle"):
        build_step(f"{unused}  step: {{update: a, loss: cost}}\n", backend, dtype="float32")
