"""An optimizer is a name and its numbers; the same name means the same rule on every backend."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("C1")

SPEC = """
graphspec: 1
name: rule
models: {v: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 0.1}}}
ops:
  w: {forward: v}
  square: {call: square, inputs: w}
  cost: {call: sum, inputs: square}
  step: {update: v, loss: cost}
"""


def after_two(rule: str, backend: str) -> np.ndarray:
    step = build_step(SPEC, backend, (f"models.v.optimizer={rule}",))
    set_weights(step, {"v.value": [1.0, -2.0]})
    step({})
    step({})
    return weights(step)["v.value"]


def test_momentum_inside_and_outside_the_learning_rate(backend: str) -> None:
    form = "{{name: sgd, lr: {{schedule: piecewise, at: {{0: 1.0, 1: 0.1}}}}, momentum: 0.5, momentum_form: {}}}"
    text = SPEC.replace("  square: {call: square, inputs: w}\n", "").replace("inputs: square", "inputs: w")
    found = {}
    for name in ("lr_outside", "lr_inside"):
        step = build_step(text, backend, (f"models.v.optimizer={form.format(name)}",))
        set_weights(step, {"v.value": [0.0, 0.0]})
        step({})
        step({})
        found[name] = weights(step)["v.value"][0]
    assert np.allclose([found["lr_outside"], found["lr_inside"]], [-1.15, -1.6])


RULES = ["adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion", "lamb", "lars", "adafactor"]
RULES += ["ftrl", "rprop", "schedule_free_sgd", "schedule_free_adamw"]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_moves_towards_less(name: str, backend: str) -> None:
    assert (np.abs(after_two(f"{{name: {name}, lr: 0.1}}", backend)) < [1.0, 2.0]).all()


def test_a_name_that_is_none_gets_a_suggestion(backend: str) -> None:
    with pytest.raises(SpecError, match=r"(?s)GS.*adam"):
        build_step(SPEC, backend, ("models.v.optimizer={name: adm}",))
