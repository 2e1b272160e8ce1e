"""Parameters that a step cannot train in its dtype are errors at build, with their names and a remedy."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from tests.features import typed_models
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("D12")

SPEC = """
graphspec: 1
name: typed
inputs: {{x: {{shape: [batch, 3]}}}}
models:
  net:
    class:
      torch: "tests.features.typed_models:make_torch"
      tensorflow: "tests.features.typed_models:make_tensorflow"
    args: {{first: {0}, second: {1}}}
    optimizer: {{name: sgd, lr: 0.5}}
ops:
  out: {{forward: net, inputs: x}}
  cost: {{call: mean, inputs: out}}
  step: {{update: net, loss: cost}}
outputs: [cost]
"""
REFUSED = [
    ("float32", "bfloat16", r"several types: float32 \('first'\), bfloat16 \('second'\)", "in one type"),
    ("complex64", "complex64", "its parameter 'first' is complex64, which no step trains", "real and imaginary part"),
]


@pytest.mark.parametrize(("first", "second", "message", "remedy"), REFUSED)
def test_a_class_with_such_parameters_is_refused(
    first: str, second: str, message: str, remedy: str, backend: str
) -> None:
    with pytest.raises(SpecError, match=f"GS208.*model 'net'.*{message}") as raised:
        build_step(SPEC.format(first, second), backend)
    assert remedy in raised.value.diagnostics[0].help
    assert raised.value.diagnostics[0].span is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_given_model_of_another_type_is_refused_and_named(dtype: str, backend: str) -> None:
    make = {"torch": typed_models.make_torch, "tensorflow": typed_models.make_tensorflow}[backend]
    plan = compile_step(load(SPEC.format("float32", "float32")), backend)
    with pytest.raises(SpecError, match=rf"GS208.*parameter 'first' is {dtype}, but the step is built for float32"):
        build(plan, device="cpu", models={"net": make(dtype, dtype)}, allow=("tests",))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_given_model_of_the_steps_type_is_trained_in_it(dtype: str, backend: str) -> None:
    make = {"torch": typed_models.make_torch, "tensorflow": typed_models.make_tensorflow}[backend]
    plan = compile_step(load(SPEC.format("float32", "float32")), backend)
    step = build(plan, device="cpu", models={"net": make(dtype, dtype)}, allow=("tests",), dtype=dtype)
    assert {each.dtype.name for each in weights(step).values()} == {dtype}


def test_whole_numbers_are_no_parameters_to_train(backend: str) -> None:
    text = SPEC.format("float64", "int64")
    if backend == "torch":  # there a parameter says by `requires_grad` that it is not trained
        assert weights(build_step(text, backend))["net.second"].tolist() == [1, 1, 1]
        return
    with pytest.raises(SpecError, match=r"GS208.*its parameter 'second' is int64, which no step trains"):
        build_step(text, backend)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_parameters_of_lower_precision_are_refused_and_what_computes_in_it_is_offered(dtype: str) -> None:
    text = SPEC.format("float32", "float32") + f"precision: {{params: {dtype}, loss_scale: dynamic}}\n"
    with pytest.raises(SpecError, match=f"GS043.*parameters are float32 in every step, not {dtype}") as raised:
        load(text)
    assert f"write `compute: {dtype}`" in raised.value.diagnostics[0].help
