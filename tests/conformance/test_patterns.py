"""Patterns over the parameters of users' classes, which only the built step knows, on both backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.conformance.scenario import BACKENDS
from tests.conformance.scenarios import tied_tensorflow, tied_torch

MODELS = {"torch": tied_torch, "tensorflow": tied_tensorflow}
SPEC = """
graphspec: 1
name: tied
rng: portable
inputs: {x: {shape: [batch, 4]}}
models:
  reader: {class: "given:Reader", traits: {rng: false, buffers: false}, READER}
  writer: {class: "given:Writer", traits: {rng: false, buffers: false, ties: [reader.weight]}, WRITER}
ops:
  code: {forward: reader, inputs: x}
  text: {forward: writer, inputs: code}
  loss: {loss: mse, inputs: [text, x]}
  step: {update: [reader, writer], loss: loss, optimizer: OPTIMIZER}
"""
X = {"x": np.arange(8.0).reshape(2, 4) / 8}


def build_step(backend: str, reader: str, writer: str, optimizer: str = "{name: sgd, lr: 0.1}") -> Step:
    """Return the step of two models that share a weight."""
    text = SPEC.replace("READER", reader).replace("WRITER", writer).replace("OPTIMIZER", optimizer)
    plan = compile_step(load(text.replace(", }", "}")), backend)
    return build(plan, device="cpu", dtype="float64", models=MODELS[backend]())


def moved(step: Step) -> Mapping[str, bool]:
    """Return which parameters a step moves, from weights that are not zero."""
    state = step.state()
    before = {name: np.full_like(value, 0.3) for name, value in state.arrays.items()}
    step.restore(replace(state, arrays=before))
    step(X)
    return {name: not np.array_equal(value, before[name]) for name, value in step.state().arrays.items()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pattern_that_fits_nothing_in_a_class_is_told_when_the_step_is_built(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-MATCH.*no parameter of model 'reader' fits 'wieght': its parameters are"):
        build_step(backend, "groups: [{match: wieght, lr_scale: 2}]", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_that_say_different_things_of_a_shared_weight_are_an_error(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-MATCH.*'reader[.]weight' and 'writer[.]weight' are one parameter"):
        build_step(backend, "groups: [{match: weight, frozen: true}]", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shared_weight_is_frozen_where_both_say_so(backend: str) -> None:
    frozen = "groups: [{match: weight, frozen: true}]"
    step = build_step(backend, frozen, frozen)
    parameters = {name: value for name, value in moved(step).items() if name.startswith("models.")}
    assert parameters == {"models.reader.weight": False, "models.reader.bias": True, "models.writer.bias": True}


@pytest.mark.parametrize("backend", BACKENDS)
def test_penalties_of_both_models_are_added_to_what_they_share(backend: str) -> None:
    plain, penalized = (build_step(backend, term, term) for term in ("", "regularizer: {l2: 0.5, match: weight}"))
    start = plain.state()
    penalized.restore(start)
    for step in (plain, penalized):
        step(X)
    weight = start.arrays["models.reader.weight"]
    found = [step.state().arrays["models.reader.weight"] for step in (plain, penalized)]
    assert np.allclose(found[1], found[0] - 0.1 * 2 * weight, rtol=1e-12)


@pytest.mark.needs("torch")
def test_a_class_of_pytorch_takes_groups_as_param_groups() -> None:
    import torch

    text = SPEC.replace("READER", "groups: [{match: bias, lr_scale: 2, weight_decay: 0.5}]").replace(", WRITER", "")
    text = text.replace("OPTIMIZER", "{class: 'torch.optim:SGD', lr: 0.1}")
    step = build(compile_step(load(text)), device="cpu", models=tied_torch(), allow=("torch",), dtype="float64")
    inner = step.optimizers["step"].native.optimizer
    assert isinstance(inner, torch.optim.SGD)
    assert [(len(one["params"]), one["lr"], one["weight_decay"]) for one in inner.param_groups] == [
        (2, 0.1, 0),
        (1, 0.2, 0.5),
    ]


@pytest.mark.needs("torch")
def test_a_class_without_what_a_group_changes_is_refused() -> None:
    text = SPEC.replace("READER", "groups: [{match: bias, weight_decay: 0.5}]").replace(", WRITER", "")
    text = text.replace("OPTIMIZER", "{class: 'torch.optim:LBFGS', lr: 0.1}")
    with pytest.raises(SpecError, match="LBFGS"):
        build(compile_step(load(text)), device="cpu", models=tied_torch(), allow=("torch",), dtype="float64")
