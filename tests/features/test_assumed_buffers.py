"""An average of a class without traits: a warning when the spec is checked, decided when the step is built."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from runtime.api import emit
from tests.features.steps import weights

SPEC = """
graphspec: 1
name: averaged
inputs: {x: {shape: [batch, 4]}}
models:
  net:
    class: {torch: 'tests.features.factories:make_torch', tensorflow: 'tests.features.factories:make_keras'}
    args: {width: 4}
    optimizer: {name: sgd, lr: 0.1}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: fit}
  average: {ema: net, decay: 0.75}
"""
NORMED = SPEC.replace("make_torch", "make_normed_torch").replace("make_keras", "make_normed_keras")


@pytest.mark.parametrize("text", [SPEC, NORMED])
def test_a_check_warns_and_an_emitted_file_needs_a_word(backend: str, text: str) -> None:
    plan = compile_step(load(text), backend)
    assert [(each.code, each.severity) for each in plan.warnings] == [("E-BUFFERS", "warning")]
    with pytest.raises(SpecError, match=r"error\[E-BUFFERS\]"):
        emit(plan)
    declared = compile_step(load(text, ["models.net.traits={buffers: false}"]), backend)
    assert declared.warnings == ()
    assert "average" in emit(declared)


def test_a_class_without_buffers_is_built_and_averaged(backend: str) -> None:
    step = build(compile_step(load(SPEC), backend), device="cpu", dtype="float64", allow=("tests",))
    begun = weights(step)
    step({"x": np.arange(8.0).reshape(2, 4)})
    after = weights(step)
    names = [name for name in begun if name.startswith("net.")]
    assert names
    for name in names:
        expected = 0.75 * begun[name] + 0.25 * after[name]
        assert np.allclose(after[name.replace("net.", "average.", 1)], expected, atol=1e-6)


def test_a_class_with_buffers_is_refused_when_it_is_built(backend: str) -> None:
    plan = compile_step(load(NORMED), backend)
    with pytest.raises(SpecError, match=r"(?s)error\[E-BUFFERS\].*'average' averages 'net', which has buffers"):
        build(plan, device="cpu", allow=("tests",))
    said = compile_step(load(NORMED, ["ops.average.buffers=copy"]), backend)
    build(said, device="cpu", allow=("tests",))
