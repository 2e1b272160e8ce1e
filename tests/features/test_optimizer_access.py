"""An optimizer's learning rate and update count can be read and set, for any schedule and framework."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphspec import SpecError
from tests.features import traced
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("B8")

SPEC = """
graphspec: 1
name: line
models:
  w: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: 0.5}}
ops:
  value: {forward: w}
  cost: {call: sum, inputs: value}
  step: {update: w, loss: cost}
outputs: [cost]
"""
FALLING = "models.w.optimizer.lr={schedule: linear, from: 1.0, to: 0.0, over: 4%s}"


def test_a_rate_that_is_set_holds_from_the_next_update_on(backend: str) -> None:
    step = build_step(SPEC, backend)
    optimizer = step.optimizers["w"]
    step({})
    optimizer.learning_rate = 0.25
    step({})
    assert weights(step)["w.value"].tolist() == [0.25, 0.25]  # the slopes are 1: 1 - 0.5 - 0.25
    optimizer.learning_rate = None
    step({})
    assert weights(step)["w.value"].tolist() == [-0.25, -0.25]
    assert (optimizer.learning_rate, optimizer.iterations) == (0.5, 3)


@pytest.mark.parametrize("clock", ["", ", clock: steps"])
def test_the_rate_that_is_read_is_the_one_that_the_next_update_takes(clock: str, backend: str) -> None:
    step = build_step(SPEC, backend, [FALLING % clock])
    optimizer = step.optimizers["w"]
    read = []
    for _ in range(3):
        read.append((optimizer.learning_rate, weights(step)["w.value"][0]))
        step({})
    moved = np.diff([weight for _, weight in read] + [weights(step)["w.value"][0]])
    assert [rate for rate, _ in read] == [1.0, 0.75, 0.5]
    assert (-moved).tolist() == [1.0, 0.75, 0.5]


def test_a_rate_stands_in_for_a_schedule_whose_clock_goes_on(backend: str) -> None:
    step = build_step(SPEC, backend, [FALLING % ""])
    optimizer = step.optimizers["w"]
    optimizer.learning_rate = 8
    step({})
    step({})
    assert optimizer.learning_rate == 8.0
    assert optimizer.is_rate_set
    optimizer.learning_rate = None
    assert optimizer.learning_rate == 0.5
    step({})
    assert weights(step)["w.value"].tolist() == [-15.5, -15.5]


RULES = ["sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion", "lamb", "lars"]
RULES += ["adafactor", "rprop", "schedule_free_sgd", "schedule_free_adamw"]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_stands_still_at_rate_zero(rule: str, backend: str) -> None:
    step = build_step(SPEC, backend, [f"models.w.optimizer={{name: {rule}, lr: 0.5}}"])
    step({})
    before = weights(step)["w.value"]
    assert not np.allclose(before, 1.0)
    step.optimizers["w"].learning_rate = 0.0
    step({})
    assert np.array_equal(weights(step)["w.value"], before)
    assert step.optimizers["w"].iterations == 2


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf, "0.1", True])
def test_what_is_no_rate_is_refused_and_changes_nothing(rate: object, backend: str) -> None:
    optimizer = build_step(SPEC, backend).optimizers["w"]
    with pytest.raises(SpecError, match=r"GS270.*optimizer 'w': .* is not a finite number from 0 up"):
        optimizer.learning_rate = rate
    assert optimizer.learning_rate == 0.5
    assert not optimizer.is_rate_set


def test_a_rate_of_zero_is_refused_where_the_rule_divides_by_it(backend: str) -> None:
    optimizer = build_step(SPEC, backend, ["models.w.optimizer=ftrl"]).optimizers["w"]
    with pytest.raises(SpecError, match=r"GS270.*0.0 is not a finite number greater than 0"):
        optimizer.learning_rate = 0.0


@pytest.mark.parametrize("name", ["momentum", "betas"])
def test_what_places_schedule_free_weights_is_fixed(name: str, backend: str) -> None:
    rule = {"momentum": "schedule_free_sgd", "betas": "schedule_free_adamw"}[name]
    options = build_step(SPEC, backend, [f"models.w.optimizer={rule}"]).optimizers["w"].options
    assert name not in options
    with pytest.raises(SpecError, match=rf"GS270.*`{name}`.*cannot change after the build"):
        options[name] = 0.5


def test_an_optimizer_says_what_it_is(backend: str) -> None:
    optimizer = build_step(SPEC, backend).optimizers["w"]
    assert repr(optimizer) == "<optimizer 'w': sgd on w, learning rate 0.5, 0 updates>"
    assert (optimizer.name, optimizer.rule, optimizer.models) == ("w", "sgd", ("w",))
    optimizer.learning_rate = 0.1
    assert repr(optimizer) == "<optimizer 'w': sgd on w, learning rate 0.1 (set by hand), 0 updates>"


@pytest.mark.parametrize("name", ["lr", "learningrate"])
def test_another_name_for_the_rate_is_refused(name: str, backend: str) -> None:
    optimizer = build_step(SPEC, backend).optimizers["w"]
    with pytest.raises(AttributeError, match=name):
        setattr(optimizer, name, 0.1)


def test_another_rate_traces_nothing_anew(backend: str) -> None:
    text = SPEC.replace("{call: sum, inputs: value}", "{call: sum, inputs: seen}")
    text = text.replace("  cost:", '  seen: {call: "tests.features.traced:count", inputs: value}\n  cost:')
    step = build_step(text, backend)
    step({})
    before = traced.COUNT[0]
    for rate in (0.25, 0.125, None, 3):
        step.optimizers["w"].learning_rate = rate
        step({})
    runs = {"tensorflow": 0, "torch": 4}  # of the function's Python: PyTorch runs it in every step, and traces nothing
    assert traced.COUNT[0] - before == runs[backend]
    assert weights(step)["w.value"].tolist() == [1 - 0.5 - 0.25 - 0.125 - 0.5 - 3] * 2


@pytest.mark.parametrize("rule", ["sgd", "rmsprop"])
def test_a_rate_that_is_set_is_scaled_for_groups_as_the_specs_is(rule: str, backend: str) -> None:
    settings = [f"models.w.optimizer={{name: {rule}, lr: 0.5}}", "models.w.groups=[{match: value, lr_scale: 0.5}]"]
    scaled, plain = build_step(SPEC, backend, settings), build_step(SPEC, backend, settings[:1])
    scaled.optimizers["w"].learning_rate = 0.25
    plain.optimizers["w"].learning_rate = 0.125
    for step in (scaled, plain):
        step({})
    assert np.array_equal(weights(scaled)["w.value"], weights(plain)["w.value"])
    assert scaled.report.updates["step"].learning_rates == {"w": 0.25}
    scaled.optimizers["w"].learning_rate = None
    assert scaled.optimizers["w"].learning_rate == 0.5
