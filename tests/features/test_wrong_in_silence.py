"""Four cases in which a predecessor trains something else in silence: each is told, or has the right numbers.

They are a parameter that is not used, a layer that is unfrozen late, two losses of one model, and a parameter that two
models share. The first is also shown by test_unreached_targets.py, the last by the catalogue (one-owner, two-owners,
tied-weights).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.conformance.scenarios import tied_tensorflow, tied_torch
from tests.features.freezing import make_frozen
from tests.features.steps import build_step, set_weights, weights

UNUSED = """
graphspec: 1
name: unused
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    class: {torch: 'tests.features.unused:Torch', tensorflow: 'tests.features.unused:TensorFlow'}
    optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.1}
    GROUPS
ops:
  y: {forward: net, inputs: x}
  cost: {call: mean, inputs: y}
  step: {update: net, loss: cost, accumulate: 2}
"""
X = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)


def test_a_parameter_that_is_not_used_is_named_before_gradients_are_gathered(backend: str) -> None:
    with pytest.raises(SpecError, match=r"(?s)GS212.*net\.idle"):
        build_step(UNUSED.replace("GROUPS", ""), backend, dtype="float32")


def test_where_it_is_frozen_it_stays_and_the_others_move_by_the_mean_of_the_window(backend: str) -> None:
    step = build_step(UNUSED.replace("GROUPS", "groups: [{match: idle, frozen: true}]"), backend, dtype="float32")
    step({"x": X})
    step({"x": 3 * X})
    slope = np.array([[1.0, 1.0], [2.0, 2.0]]) * (1 + 3) / 2  # the mean of x over rows, halved by the mean over outputs
    assert np.allclose(weights(step)["net.weight"], 1 - 0.1 * (slope + 0.1), atol=1e-6)
    assert np.array_equal(weights(step)["net.idle"], np.ones((2, 2)))


LATE = """
graphspec: 1
name: late
inputs: {x: {shape: [batch, 2]}}
models: {net: {class: "given:Net", optimizer: {name: sgd, lr: 0.1}}}
ops:
  y: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [y, x]}
  step: {update: net, loss: cost}
  told: {metric: mean, inputs: cost, mode: eval}
"""


def build_given(model: object, backend: str) -> Step:
    """Return a step that trains a given model."""
    return build(compile_step(load(LATE), backend), device="cpu", models={"net": model})


def moved(step: Step) -> set[str]:
    """Return the parameters that a step moves, without what comes behind their layer's number."""
    before = weights(step)
    step({"x": X})
    return {name.split(".")[1] for name, value in weights(step).items() if not np.array_equal(value, before[name])}


def test_a_layer_that_is_unfrozen_after_the_step_was_built_is_told(backend: str) -> None:
    frozen = make_frozen(backend)
    step = build_given(frozen.model, backend)
    assert len(moved(step)) == 1
    frozen.let_train(wanted=True)
    with pytest.raises(SpecError, match=r"(?s)GS269.*model 'net'.*unfrozen since then: 0\."):
        moved(step)
    step({"x": X}, mode="eval")  # where nothing is trained, nothing hangs on it
    assert len(moved(build_given(frozen.model, backend))) == 2


def test_a_layer_that_is_frozen_after_the_step_was_built_is_told_and_may_be_unfrozen_again(backend: str) -> None:
    frozen = make_frozen(backend)
    frozen.let_train(wanted=True)
    step = build_given(frozen.model, backend)
    frozen.let_train(wanted=False)
    with pytest.raises(SpecError, match=r"(?s)GS269.*frozen since then: 0\."):
        moved(step)
    frozen.let_train(wanted=True)
    assert len(moved(step)) == 2


TWO = """
graphspec: 1
name: two-losses
models: {w: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 0.1, momentum: 0.5}}}
ops:
  here: {forward: w}
  first_square: {call: square, inputs: here}
  first: {call: sum, inputs: first_square}
  there: {forward: w, AFTER}
  second_square: {call: square, inputs: there}
  second_sum: {call: sum, inputs: second_square}
  second: {call: mul, inputs: [second_sum, 1.5]}
  both: {call: add, inputs: [first, second]}
"""
APART = TWO + "  step_first: {update: w, loss: first}\n  step_second: {update: w, loss: second}\n"
START = np.array([1.0, -2.0])


def end_of(text: str, backend: str) -> np.ndarray:
    """Return the parameter after one step from a start."""
    step = build_step(text, backend)
    set_weights(step, {"w.value": START})
    step({})
    return weights(step)["w.value"]


def test_two_losses_of_one_model_need_an_order(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-UNORDERED-WRITES.*'step_second'"):
        build_step(APART.replace("AFTER", "after: []"), backend)


def test_two_losses_that_are_added_move_it_once_by_the_sum(backend: str) -> None:
    text = TWO.replace("AFTER", "after: []") + "  step: {update: w, loss: both}\n"
    assert np.allclose(end_of(text, backend), START - 0.1 * (2 * START + 3 * START), atol=1e-14)


def test_two_losses_in_order_move_it_twice_with_one_momentum(backend: str) -> None:
    middle = START - 0.1 * 2 * START
    expected = middle - 0.1 * (0.5 * 2 * START + 3 * middle)
    assert np.allclose(end_of(APART.replace("AFTER", "after: step_first"), backend), expected, atol=1e-14)


TIES = (Path(__file__).parents[1] / "conformance" / "specs" / "ties.yaml").read_text(encoding="utf-8")
SHARED = f"""{TIES[: TIES.index("  head:")]}
ops:
  code: {{forward: reader, inputs: x}}
  text: {{forward: writer, inputs: y}}
  read: {{call: mean, inputs: code}}
  wrote: {{call: mean, inputs: text}}
  both: {{call: add, inputs: [read, wrote]}}
"""
JOINT = SHARED + "  step: {update: [reader, writer], loss: both, optimizer: {name: sgd, lr: 0.1}}\n"
SEPARATE = f"""{SHARED}
  step_reader: {{update: reader, loss: read, optimizer: {{name: sgd, lr: 0.1}}}}
  step_writer: {{update: writer, loss: wrote, optimizer: {{name: sgd, lr: 0.1}}, after: step_reader}}
"""


def build_tied(text: str, backend: str) -> Step:
    """Return the step of a spec over two models that share a weight."""
    models = tied_torch() if backend == "torch" else tied_tensorflow()
    return build(compile_step(load(text), backend), device="cpu", dtype="float64", models=models)


def test_a_parameter_of_two_models_has_one_optimizer(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-OVERLAP.*tied\(reader, writer\) is stepped by two optimizers"):
        build_tied(SEPARATE, backend)


def test_a_parameter_of_two_models_is_not_shared_in_silence(backend: str) -> None:
    with pytest.raises(SpecError, match=r"reader\.weight"):
        build_tied(SEPARATE.replace(", ties: [reader.weight]", ""), backend)


def test_a_parameter_of_two_models_moves_once_by_the_sum_of_both_gradients(backend: str) -> None:
    step = build_tied(JOINT, backend)
    start, random = weights(step)["reader.weight"], np.random.default_rng(3)
    x, y = random.normal(size=(2, 6, 4))
    step({"x": x, "y": y})
    slope = np.tile((x.mean(0) + y.mean(0)) / 4, (4, 1))
    assert np.allclose(weights(step)["reader.weight"], start - 0.1 * slope, atol=1e-14)
