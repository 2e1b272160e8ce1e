"""`outputs` takes the results of a class by their names, one or several; what is not named is told how to be."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.features import typed_results

SPEC = """
graphspec: 1
name: named
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    class: "tests.features.typed_results:make_BACKEND"
    args: {kind: KIND, kept: KEPT}
    optimizer: {name: sgd, lr: 0.5}
ops:
  OP: {forward: net, inputs: x OUTPUTS}
  error: {call: mean, inputs: VALUE}
  step: {update: net, loss: error}
outputs: [error, VALUE]
"""
FORMS = ["mapping", "output", "fields", "pair"]
X = np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)


def make(backend: str, form: str, op: str, outputs: str, value: str, *, kept: bool = True, more: str = "") -> Step:
    """Return the step of a model that returns its results in a form."""
    text = SPEC.replace("KIND", form).replace("KEPT", str(kept).lower()).replace("OP", op).replace("VALUE", value)
    text = text.replace("BACKEND", backend).replace(" OUTPUTS", outputs and f", outputs: {outputs}")
    return build(compile_step(load(text + more), backend), device="cpu", allow=("tests",))


@pytest.mark.sample(3)
@pytest.mark.parametrize("outputs", ["[logits]", "logits", "[logits, hidden]", "[hidden, logits]"])
@pytest.mark.parametrize("form", FORMS)
def test_results_are_taken_by_name(form: str, outputs: str, backend: str) -> None:
    step = make(backend, form, "seen", outputs, "logits")
    weight = np.full((3, 2), 0.25)
    for _ in range(2):
        logits = step.numpy(step({"x": X})["logits"])
        assert np.allclose(logits, X @ weight.T, atol=1e-6)
        weight = weight - 0.5 * X.mean(axis=0) / 3  # the mean over three results of each sample


@pytest.mark.parametrize("form", FORMS)
def test_another_result_may_be_none_or_left_alone(form: str, backend: str) -> None:
    step = make(backend, form, "logits", "[logits]", "logits", kept=False)
    assert np.allclose(step.numpy(step({"x": X})["logits"]), X.sum(axis=1, keepdims=True) * 0.25 + np.zeros(3))


@pytest.mark.parametrize("form", FORMS)
def test_a_name_that_it_does_not_have_is_told(form: str, backend: str) -> None:
    with pytest.raises(SpecError, match=r"op 'seen' .*: the call gave a .* without 'hidden'"):
        make(backend, form, "seen", "[logits, hidden]", "hidden", kept=False)


def test_a_tuple_of_one_is_that_one(backend: str) -> None:
    step = make(backend, "single", "seen", "[out]", "out")
    assert step.numpy(step({"x": X})["out"]).shape == (2, 3)


NAMES = {"pair": "hidden, logits", "tuple": "name1, name2", "list": "name1, name2"}


@pytest.mark.parametrize("form", ["mapping", "fields", *NAMES])
def test_results_without_names_in_the_spec_are_told_what_to_write(form: str, backend: str) -> None:
    """TensorFlow would stack several of one shape."""
    with pytest.raises(SpecError) as raised:
        make(backend, form, "seen", "", "seen")
    kind = type(typed_results.pack(form, 1, 2)).__name__
    names = NAMES.get(form, "logits, hidden")
    told = f"'seen' is not a tensor but a {kind}: write `outputs: [{names}]` at 'seen'"
    assert raised.value.diagnostics[0].help == told


FUNCTION = """
graphspec: 1
name: functions
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.5}}}
ops:
  seen: {forward: net, inputs: x}
  parts: {call: "tests.features.typed_results:halves", inputs: seen}
  joined: {call: "tests.features.typed_results:join", inputs: parts}
  error: {call: mean, inputs: TAKEN}
  step: {update: net, loss: error}
outputs: [error]
"""


def test_results_of_functions_are_told_too_and_given_to_functions_as_they_are(backend: str) -> None:
    with pytest.raises(SpecError, match=r"'parts' is not a tensor but a tuple: write `outputs: \[name1, name2\]`"):
        build(compile_step(load(FUNCTION.replace("TAKEN", "parts")), backend), device="cpu", allow=("tests",))
    build(compile_step(load(FUNCTION.replace("TAKEN", "joined")), backend), device="cpu", allow=("tests",))({"x": X})


@pytest.mark.parametrize("form", FORMS)
def test_named_results_are_float32_again_under_lower_precision(form: str, backend: str) -> None:
    step = make(backend, form, "seen", "[logits]", "logits", more="precision: bfloat16\n")
    logits = step({"x": X})["logits"]
    assert step.numpy(logits).dtype == np.float32
    assert np.allclose(step.numpy(logits), X @ np.full((2, 3), 0.25), atol=0.02)
