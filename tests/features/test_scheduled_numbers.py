"""Any number of an op can follow a schedule, and ops start, pause and end by their clocks."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from runtime import build
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A14")

SPEC = """
graphspec: 1
name: follow
models:
  m: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 1.0}}
  n: {like: m}
ops:
  beta: {schedule: warmup, from: 0.0, to: 1.0, over: 4}
  value: {forward: m}
  cost: {call: sum, inputs: value}
  FIELDS
outputs: [beta]
"""
HALVING = "{schedule: step, from: 1.0, factor: 0.5, every: 1}"
WEIGHED = f"halved: {{loss: wasserstein, inputs: value, reduction: sum, weight: {HALVING}}}"


def make(backend: str, *ops: str):
    """Return a step with further ops; its weights begin at 0."""
    return build_step(SPEC.replace("FIELDS", "\n  ".join(ops)), backend)


def moves(step, steps: int) -> np.ndarray:
    """Return how far each step moves the first weight."""
    heights = [0.0]
    for _ in range(steps):
        step({})
        heights.append(float(weights(step)["m.value"][0]))
    return np.diff(heights)


def test_a_value_rises_from_step_to_step_and_stays(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost}")
    assert [float(step({})["beta"]) for _ in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]


def test_an_evaluation_reads_what_the_next_training_step_will(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost}")
    for expected in (0.0, 0.25, 0.5):
        assert float(step({}, mode="eval")["beta"]) == float(step({}, mode="eval")["beta"]) == expected
        step({})


def test_the_weight_of_a_loss_falls(backend: str) -> None:
    step = make(backend, WEIGHED, "step: {update: m, loss: halved}")
    assert np.allclose(moves(step, 4), [-1, -0.5, -0.25, -0.125])


@pytest.mark.parametrize("scaled", ["[cost, beta]", "[cost, {schedule: warmup, from: 0, to: 1, over: 4}]"])
def test_a_term_fades_in(backend: str, scaled: str) -> None:
    step = make(backend, f"faded: {{call: mul, inputs: {scaled}}}", "step: {update: m, loss: faded}")
    assert np.allclose(moves(step, 5), [0, -0.25, -0.5, -0.75, -1])


def test_a_clip_counts_the_updates_of_its_optimizer(backend: str) -> None:
    clip = "clip: {value: {schedule: step, from: 1.0, factor: 0.5, every: 1}}"
    step = make(backend, f"step: {{update: m, loss: cost, every: 2, {clip}}}")
    assert np.allclose(moves(step, 6), [0, -1, 0, -0.5, 0, -0.25])


def test_what_is_added_to_a_length_changes_too(backend: str) -> None:
    clip = "clip: {norm: 1.0, eps: {schedule: step, from: 1.0, factor: 0.5, every: 1}}"
    step = make(backend, f"step: {{update: m, loss: cost, every: 2, {clip}}}")
    assert np.allclose(moves(step, 4), [0, -1 / (2**0.5 + 1), 0, -1 / (2**0.5 + 0.5)])


def test_a_clip_may_count_steps(backend: str) -> None:
    clip = "clip: {value: {schedule: step, from: 1.0, factor: 0.5, every: 1, clock: steps}}"
    step = make(backend, f"step: {{update: m, loss: cost, every: 2, {clip}}}")
    assert np.allclose(moves(step, 4), [0, -0.5, 0, -0.125])


def test_what_an_average_takes_changes(backend: str) -> None:
    tau = "{schedule: piecewise, at: {0: 1.0, 1: 0.5, 2: 0.0}}"
    step = make(backend, "step: {update: m, loss: cost}", f"follow: {{ema: m, into: n, tau: {tau}}}")
    seen = [step({}) and float(weights(step)["n.value"][0]) for _ in range(3)]
    assert np.allclose(seen, [-1, -1.5, -1.5])


def test_an_op_starts_rests_and_ends(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, start: 2, every: 2, until: 5}")
    assert np.allclose(moves(step, 7), [0, -1, 0, -1, 0, 0, 0])


def test_a_restored_step_goes_on_where_it_was(backend: str) -> None:
    ops = WEIGHED, "step: {update: m, loss: halved, clip: {norm: {schedule: linear, from: 9, to: 0.1, over: 4}}}"
    step, other = make(backend, *ops), make(backend, *ops)
    moves(step, 3)
    other.restore(step.state())
    assert np.array_equal(moves(step, 3)[1:], moves(other, 3)[1:])


def test_numbers_are_in_the_type_of_the_step(backend: str) -> None:
    plan = compile_step(load(SPEC.replace("FIELDS", "step: {update: m, loss: cost}")), backend)
    assert "float32" in str(build(plan, device="cpu")({})["beta"].dtype)


CHANGING = SPEC.replace("optimizer: {name: sgd, lr: 1.0}", "optimizer: {1: {name: sgd, lr: 1.0}, EPOCHS}")


def make_changing(backend: str, epochs: str):
    """Return a step whose optimizer changes, with two steps to an epoch."""
    text = CHANGING.replace("FIELDS", "step: {update: m, loss: cost}").replace("EPOCHS", epochs)
    return build(compile_step(load(text), backend, pace=Pace(epoch=2)), device="cpu", dtype="float64")


def test_another_optimizer_steps_from_its_epoch_on(backend: str) -> None:
    step = make_changing(backend, "2: {name: sgd, lr: 0.5, momentum: 0.5}, 4: {name: sgd, lr: 0.25}")
    assert np.allclose(moves(step, 8), [-1, -1, -0.5, -0.75, -0.875, -0.9375, -0.25, -0.25])
    assert {name: each.iterations for name, each in step.optimizers.items()} == {"m": 2, "m@2": 4, "m@4": 2}


def test_each_optimizer_begins_anew_with_schedule_and_slots(backend: str) -> None:
    momentum = "{name: sgd, lr: {schedule: step, from: 1.0, factor: 0.5, every: 1}, momentum: 1.0}"
    step = make_changing(backend, f"2: {momentum}, 3: {momentum}")
    assert np.allclose(moves(step, 6), [-1, -1, -1, -1, -1, -1])


def test_a_restored_step_has_the_optimizer_of_its_epoch(backend: str) -> None:
    epochs = "2: {name: adam, lr: 0.1}"
    step, other = make_changing(backend, epochs), make_changing(backend, epochs)
    moves(step, 3)
    other.restore(step.state())
    assert np.array_equal(moves(step, 3)[1:], moves(other, 3)[1:])
    assert other.report.updates["step"].learning_rates == {"m@2": 0.1}


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        ("{2: sgd, 5: adam}", "no optimizer steps before epoch 2"),
        ("{1: sgd, 0: adam}", "expected the epoch from which on an optimizer steps, found '0'"),
        ("{1: sgd, lr: 0.1}", "expected the epoch from which on an optimizer steps, found 'lr'"),
        ("{1: sgd, 2: {1: sgd}}", "expected one optimizer, found several"),
        ("{1: sgd, 2: {name: sgd, rate: 1}}", "rate"),
    ],
)
def test_what_is_no_list_of_epochs_is_refused(epochs: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(SPEC.replace("{name: sgd, lr: 1.0}", epochs).replace("FIELDS", ""))


def test_epochs_need_a_known_length() -> None:
    text = CHANGING.replace("FIELDS", "step: {update: m, loss: cost}").replace("EPOCHS", "3: adam")
    with pytest.raises(
        SpecError, match=r"E-PACE.*the optimizer of 'm' changes at epoch 3.*how many steps an epoch has"
    ):
        compile_step(load(text))


def test_no_schedule_counts_the_updates_of_what_is_replaced() -> None:
    clip = "clip: {value: {schedule: step, from: 1.0, factor: 0.5, every: 1}}"
    text = CHANGING.replace("FIELDS", f"step: {{update: m, loss: cost, {clip}}}").replace("EPOCHS", "3: adam")
    with pytest.raises(SpecError, match=r"E-PACE.*changes at epoch 3 are not counted on"):
        compile_step(load(text), pace=Pace(epoch=2))
