"""`missing` decides what happens to a parameter without a gradient: an error before its update, skip, or zero."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.step import StepError
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("C7")

SPEC = """
graphspec: 1
name: absent
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    class: {torch: 'tests.features.unused:Torch', tensorflow: 'tests.features.unused:TensorFlow'}
    optimizer: {OPTIMIZER}
ops:
  y: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [y, x]}
  UPDATE
"""
MOMENTUM = "name: sgd, lr: 0.5, momentum: 0.9, weight_decay: 0.1"
X = np.array([[0.3, -0.2], [0.1, 0.7]], np.float32)
LOSS = "step: {update: net, loss: cost, missing: WORD}"
GRADIENTS = "g: {gradient: cost, wrt: net, unconnected: skip}\n  step: {update: net, gradients: g, missing: WORD}"
WINDOW = "step: {update: net, loss: cost, missing: WORD, accumulate: 2}"
WAYS = (LOSS, GRADIENTS, WINDOW, GRADIENTS.replace("WORD}", "WORD, accumulate: 2, clip: {norm: 1.0}}"))


def make(update: str, word: str, backend: str, optimizer: str = MOMENTUM):
    text = SPEC.replace("OPTIMIZER", optimizer).replace("UPDATE", update.replace("WORD", word))
    return build_step(text, backend, dtype="float32")


@pytest.mark.parametrize("update", WAYS)
def test_skip_leaves_it_and_its_slots_bit_for_bit(update: str, backend: str) -> None:
    step = make(update, "skip", backend)
    set_weights(step, {"net.idle": [[1.1, 2.2], [3.3, 4.4]]})
    for _ in range(4):
        step({"x": X})
    arrays = step.state().arrays
    assert np.array_equal(arrays["models.net.idle"], np.array([[1.1, 2.2], [3.3, 4.4]], np.float32))
    assert not arrays["optimizers.net.momentum_buffer.idle"].any()
    assert arrays["optimizers.net.momentum_buffer.weight"].any()


@pytest.mark.parametrize("update", WAYS)
def test_zero_is_a_gradient_which_weight_decay_turns_into_steps(update: str, backend: str) -> None:
    step = make(update, "zero", backend)
    set_weights(step, {"net.idle": np.ones((2, 2))})
    for _ in range(2 if "accumulate" in update else 1):
        step({"x": X})
    assert np.allclose(weights(step)["net.idle"], 1 - 0.5 * 0.1)


@pytest.mark.parametrize("update", WAYS)
def test_an_error_names_the_parameter_and_what_to_do(update: str, backend: str) -> None:
    found = r"(?s)GS212.*net\.idle.*missing: skip"
    with pytest.raises(StepError, match=found):
        make(update, "error", backend)


RULES = ["adam", "adamw", "adagrad", "adamax", "nadam", "rmsprop", "adadelta", "lion", "lamb", "lars", "adafactor"]
RULES += ["muon", "schedule_free_sgd", "schedule_free_adamw"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", [*RULES, "ftrl", "rprop"])
def test_every_rule_skips(rule: str, backend: str) -> None:
    step = make(LOSS, "skip", backend, f"name: {rule}{', weight_decay: 0.1' if rule in RULES else ''}")
    before = weights(step)["net.idle"].copy()
    for _ in range(3):
        step({"x": X})
    assert np.array_equal(weights(step)["net.idle"], before)
    assert not np.array_equal(weights(step)["net.weight"], np.ones((2, 2)))


def test_a_constraint_leaves_it_too(backend: str) -> None:
    step = make(LOSS.replace("WORD", "WORD, constraint: {clip: [-0.5, 0.5]}"), "skip", backend)
    step({"x": X})
    assert weights(step)["net.idle"].min() == 1.0
    assert weights(step)["net.weight"].max() == 0.5


def test_a_penalty_is_a_gradient_of_its_own(backend: str) -> None:
    step = make(LOSS, "skip", backend, "name: sgd, lr: 0.5}\n    regularizer: {l2: 0.2")
    step({"x": X})
    assert np.allclose(weights(step)["net.idle"], 1 - 0.5 * 2 * 0.2)


LAZY = """
graphspec: 1
name: lazy
models:
  a: {parameter: {shape: [], init: 1.0}}
  b: {parameter: {shape: [], init: 1.0}}
ops:
  at_a: {forward: a}
  at_b: {forward: b}
  main: {loss: mse, inputs: [at_a, 0.0]}
  more: {loss: mse, inputs: [at_b, 0.0], every: 2, lazy: none}
  cost: {call: add, inputs: [main, more]}
  step: {update: [a, b], loss: cost, missing: WORD, optimizer: {name: OPTIMIZER}, accumulate: STEPS}
"""


def make_lazy(word: str, optimizer: str, steps: int, backend: str):
    text = LAZY.replace("WORD", word).replace("OPTIMIZER", optimizer).replace("STEPS", str(steps))
    return build_step(text, backend)


def test_an_absent_gradient_adds_nothing_to_a_window_and_its_steps_count(backend: str) -> None:
    step = make_lazy("skip", "sgd, lr: 0.25", 2, backend)
    step({})
    step({})
    assert np.allclose(weights(step)["b.value"], 1 - 0.25 * (0 + 2) / 2)
    assert np.allclose(weights(step)["a.value"], 1 - 0.25 * (2 + 2) / 2)


def test_what_was_absent_in_every_step_of_a_window_is_absent(backend: str) -> None:
    step = make_lazy("skip", "sgd, lr: 0.25, weight_decay: 0.1", 1, backend)
    step({})
    assert weights(step)["b.value"] == 1.0
    step({})
    assert np.allclose(weights(step)["b.value"], 1 - 0.25 * (2 + 0.1))


def test_all_parameters_of_an_optimizer_have_one_count(backend: str) -> None:
    step = make_lazy("skip", "adam, lr: 0.1, eps: 0.0", 1, backend)
    step({})
    step({})
    mean, square = 0.1 * 2 / (1 - 0.9**2), 0.001 * 4 / (1 - 0.999**2)  # of the second update, not of the first
    assert np.allclose(weights(step)["b.value"], 1 - 0.1 * mean / np.sqrt(square))


@pytest.mark.parametrize("steps", [1, 3])
def test_a_checkpoint_in_between_changes_nothing(steps: int, backend: str) -> None:
    one, other = (make_lazy("skip", "sgd, lr: 0.25, momentum: 0.9", steps, backend) for _ in range(2))
    for _ in range(4):
        other.restore(one.state())
        one({})
        other({})
        assert all(np.array_equal(value, weights(other)[name]) for name, value in weights(one).items())


@pytest.mark.needs("torch")
def test_a_branch_that_is_taken_for_some_batches_trains_in_those() -> None:
    text = SPEC.replace("'tests.features.unused:Torch'", "'tests.features.branching:Branching'")
    text = text.replace("OPTIMIZER", MOMENTUM).replace("UPDATE", LOSS.replace("WORD", "skip"))
    step = build_step(text, "torch", dtype="float32")
    moved: list[set[str]] = []
    for sign in (1, -1, 1):
        before = weights(step)
        step({"x": np.abs(X) * sign})
        moved.append({name for name, value in weights(step).items() if not np.array_equal(value, before[name])})
    assert moved == [{"net.high"}, {"net.low"}, {"net.high"}]
