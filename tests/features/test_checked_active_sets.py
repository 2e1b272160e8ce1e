"""Every set of ops that can fire together is checked before the first step, however late it fires."""

from __future__ import annotations

import pytest

from graphspec import SpecError
from tests.features.steps import build_step

pytestmark = pytest.mark.row("A18")

SPEC = """
graphspec: 1
name: rare
inputs: {x: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: 3}], optimizer: sgd}
  judge:
    class: {torch: "tests.features.narrow:Torch", tensorflow: "tests.features.narrow:TensorFlow"}
    optimizer: sgd
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: cost}
  wide: {call: concat, inputs: [out, out], args: {axis: 1}}
  score: {forward: judge, inputs: wide}
  late: {loss: mse, inputs: [score, 1.0]}
  rarely: {update: judge, loss: late, every: 1000}
"""


def test_what_fails_in_the_thousandth_step_fails_at_build(backend: str) -> None:
    with pytest.raises(SpecError, match=r"(?s)GS21.*score"):
        build_step(SPEC, backend, dtype="float32")


def test_what_fits_is_built(backend: str) -> None:
    assert build_step(SPEC, backend, ("ops.score.inputs=out",), dtype="float32").sizes["judge"] == 3
