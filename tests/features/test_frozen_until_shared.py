"""`frozen: {until: ...}` where parameters are shared, or gradients that are not finite are skipped."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.conformance.scenarios import tied_tensorflow, tied_torch
from tests.features.paced import build_paced
from tests.features.steps import set_weights, weights

MODELS = {"torch": tied_torch, "tensorflow": tied_tensorflow}
TIED = """
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 4]}}
models:
  reader: {class: "given:Reader"READER, optimizer: {name: sgd, lr: 1.0}}
  writer: {class: "given:Writer", traits: {ties: [reader.weight]}WRITER, optimizer: {name: sgd, lr: 1.0}}
ops:
  code: {forward: reader, inputs: x}
  text: {forward: writer, inputs: x}
  both: {call: add, inputs: [code, text]}
  error: {call: mean, inputs: both}
  step: UPDATE
"""
"""The slope by the weight is 1/4 from either model, that by a bias 1/4."""
JOINT = "{update: [reader, writer], loss: error, optimizer: {name: sgd, lr: 1.0}MORE}"
ONE = "{update: reader, loss: error}"
UNTIL_2, UNTIL_3 = (f", groups: [{{match: weight, frozen: {{until: {last} steps}}}}]" for last in (2, 3))
ONES = {"x": np.ones((1, 4))}


def built(backend: str, update: str, reader: str = UNTIL_2, writer: str = UNTIL_2) -> Step:
    """Return the step of two models that share a weight, all of whose numbers are 0."""
    text = TIED.replace("READER", reader).replace("WRITER", writer).replace("UPDATE", update)
    models = MODELS[backend]()
    step = build(compile_step(load(text), backend), models=models, allow=["given"], dtype="float64", device="cpu")
    set_weights(step, {name: np.zeros(value.shape) for name, value in weights(step).items()})
    return step


def walk(step: Step, steps: int) -> list[tuple[float, float]]:
    """Return an element of the weight, and one of the reader's bias, after each of some steps."""
    found: list[tuple[float, float]] = []
    for _ in range(steps):
        step(ONES)
        now = weights(step)
        found.append((float(now["reader.weight"][0, 0]), float(now["reader.bias"][0])))
    return found


def test_a_weight_that_models_share_is_frozen_and_thaws_once(backend: str) -> None:
    found = walk(built(backend, JOINT.replace("MORE", "")), 4)
    assert np.allclose(found, [(0, -0.25), (0, -0.5), (-0.5, -0.75), (-1, -1)])


def test_what_one_model_freezes_no_update_of_another_trains(backend: str) -> None:
    found = walk(built(backend, ONE, reader=""), 3)
    assert np.allclose(found, [(0, -0.25), (0, -0.5), (-0.5, -0.75)])


def test_a_window_of_the_other_model_reaches_over_the_moment(backend: str) -> None:
    found = walk(built(backend, ONE.replace("}", ", accumulate: 3}"), reader=""), 3)
    assert np.allclose(found[-1], (-0.5 / 3, -0.25))


def test_two_updates_of_the_weight_are_both_without_it(backend: str) -> None:
    shared = ONE.replace("}", ", shared: sum}") + "\n  more: {update: writer, loss: error}"
    found = walk(built(backend, shared), 3)
    assert np.allclose([weight for weight, _ in found], [0, 0, -1])


def test_models_that_are_both_trained_say_the_same_of_what_they_share(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-MATCH\]: 'reader.weight' and 'writer.weight' are one parameter"):
        built(backend, JOINT.replace("MORE", ""), writer=UNTIL_3)


JUDGED = """
graphspec: 1
name: judged
precision: {loss_scale: 8}
inputs: {x: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  head:
    parameter: {shape: [], init: 1.0}
    optimizer: {name: sgd, lr: 1.0, weight_decay: 0.5}
    groups: [{match: value, frozen: {until: 2 steps}}]
ops:
  w: {forward: net}
  h: {forward: head}
  sum: {call: add, inputs: [w, h]}
  product: {call: mul, inputs: [x, sum]}
  cost: {call: mean, inputs: product}
  step: {update: [net, head], loss: cost, accumulate: {steps: 3}}
"""
WHOLE = "ops.step.accumulate.on_nonfinite=window"


def follow(backend: str, slopes: list[float], *settings: str) -> tuple[float, float]:
    """Return both weights after steps on batches of one row."""
    step = build_paced(JUDGED, backend, settings)
    for slope in slopes:
        step({"x": np.array([float(slope)])})
    return float(weights(step)["net.value"]), float(weights(step)["head.value"])


def test_a_window_over_the_moment_has_what_was_committed_behind_it(backend: str) -> None:
    assert np.allclose(follow(backend, [1, 2, 6]), (-3, 1 - 2 - 0.5))
    assert np.allclose(follow(backend, [1, np.inf, 6]), (-3.5, 1 - 3 - 0.5))


def test_where_all_behind_it_is_dropped_the_parameter_stays(backend: str) -> None:
    assert follow(backend, [1, 2, np.inf]) == (-1.5, 1)


def test_a_window_that_is_lost_moves_neither(backend: str) -> None:
    assert follow(backend, [1, np.inf, 6], WHOLE) == (0, 1)
    assert np.allclose(follow(backend, [1, 2, 6], WHOLE), (-3, 1 - 2 - 0.5))
