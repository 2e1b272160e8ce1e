"""`dataset` says for which data sets' batches an op runs; several training sets alternate."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime.step import StepError
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A4")

SPEC = """
graphspec: 1
name: sets
inputs: {x: {shape: [batch, 2]}, a: {shape: [batch]}, b: {shape: [batch]}}
models:
  m: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 1.0}}
  n: {parameter: {shape: []}, optimizer: {name: sgd, lr: 1.0}}
ops:
  both: {call: mean, inputs: x}
  first: {call: sum, inputs: a, dataset: one}
  other: {call: sum, inputs: b, dataset: "!one"}
  several: {call: max, inputs: x, dataset: [one, two]}
  value: {forward: m}
  cost: {call: sum, inputs: value}
  FIELDS
outputs: [both, first, other, several]
"""
X, A, B = np.array([[1.0, 2.0]]), np.array([3.0]), np.array([4.0])


def make(backend: str, *ops: str):
    """Return a step with further ops; its weights begin at 0."""
    return build_step(SPEC.replace("FIELDS", "\n  ".join(ops)), backend)


def moves(step, sets: str) -> list[float]:
    """Return how far the first weight moves in a step on each of some sets: a letter each."""
    heights, inputs = [0.0], {"one": {"x": X, "a": A}, "two": {"x": X, "b": B}, "three": {"x": X, "b": B}}
    for name in sets.split():
        step(inputs[name], dataset=name)
        heights.append(float(weights(step)["m.value"][0]))
    return [*np.diff(heights)]


@pytest.mark.parametrize(
    ("dataset", "batch", "expected"),
    [
        ("one", {"x": X, "a": A}, {"both", "first", "several"}),
        ("two", {"x": X, "b": B}, {"both", "other", "several"}),
        ("three", {"x": X, "b": B}, {"both", "other"}),
    ],
)
def test_a_batch_has_the_inputs_and_gives_the_outputs_of_its_set(backend, dataset, batch, expected) -> None:
    step = make(backend, "last: {call: min, inputs: x, dataset: three}")
    assert set(step(batch, dataset=dataset)) == expected
    assert step.report.dataset == dataset


def test_an_update_rests_on_other_sets(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, dataset: one}", "last: {call: min, inputs: x, dataset: three}")
    assert moves(step, "one two one three") == [-1, 0, -1, 0]
    assert step.report.updates["step"].reason == "it runs on batches of one"


def test_what_reads_a_value_of_one_set_runs_there(backend: str) -> None:
    step = make(backend, "near: {call: mul, inputs: [cost, first]}", "step: {update: m, loss: near}")
    assert moves(step, "two one two") == [0, -3, 0]


def test_every_counts_the_steps_on_its_own_sets(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, dataset: one, every: 2}")
    assert moves(step, "one two one two one one two") == [0, 0, -1, 0, 0, -1, 0]


def test_the_first_step_after_a_start_counts(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, dataset: one, every: 2, start: 3}")
    assert moves(step, "one two two one two one one") == [0, 0, 0, -1, 0, 0, -1]


def test_a_window_gathers_on_its_own_sets(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, dataset: one, accumulate: {steps: 2, reduce: sum}}")
    assert moves(step, "one two one one two one") == [0, 0, -2, 0, 0, -2]


def test_an_average_rests_with_the_update_it_follows(backend: str) -> None:
    step = make(backend, "step: {update: m, loss: cost, dataset: one}", "mean: {ema: m, decay: 0.5}")
    moves(step, "one two")
    assert np.allclose(weights(step)["mean.value"], -0.5)


def test_two_updates_of_two_sets_share_an_optimizer(backend: str) -> None:
    ops = [f"step_{name}: {{update: m, loss: cost, dataset: {name}}}" for name in ("one", "two")]
    step = make(backend, *ops)
    assert moves(step, "one two two") == [-1, -1, -1]
    assert step.optimizers["m"].iterations == 3


def test_after_an_op_of_another_set_its_predecessors_still_hold(backend: str) -> None:
    ops = [
        "grow: {update: m, loss: cost}",
        "rest: {update: n, loss: small, dataset: one, after: grow}",
        "own: {forward: n}",
        "small: {call: sum, inputs: own}",
        "seen: {forward: m, after: rest}",
    ]
    step = build_step(
        SPEC.replace("FIELDS", "\n  ".join(ops)).replace("outputs: [both", "outputs: [seen, both"), backend
    )
    assert float(step({"x": X, "b": B}, dataset="two")["seen"][0]) == -1


def test_a_restored_step_goes_on_where_it_was(backend: str) -> None:
    ops = "step: {update: m, loss: cost, dataset: one, every: 2}"
    step, other = make(backend, ops), make(backend, ops)
    moves(step, "one two")
    other.restore(step.state())
    assert moves(other, "two one") == [0, -1]


def test_a_step_is_told_of_which_set_its_batch_is(backend: str) -> None:
    step = make(backend)
    with pytest.raises(StepError, match=r"GS281.*distinguishes data sets \(one, two\), but the step"):
        step({"x": X, "a": A})
    with pytest.raises(StepError, match=r"GS281.*no data set 'won': it has one, two; did you mean 'one'\?"):
        step({"x": X, "a": A}, dataset="won")


def test_an_evaluation_is_of_no_set_where_nobody_says(backend: str) -> None:
    step = make(backend)
    assert set(step({"x": X, "b": B}, mode="eval")) == {"both", "other"}
    assert set(step({"x": X, "a": A}, mode="eval", dataset="one")) == {"both", "first", "several"}


def test_the_plan_says_which_function_is_for_which_set() -> None:
    plan = compile_step(load(SPEC.replace("FIELDS", "step: {update: m, loss: cost, dataset: one}")))
    assert "train_step_1  (writes: step; for one)" in plan.text()
    assert [each["datasets"] for each in plan.to_json()["functions"]] == [["one"], ["two"]]


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("sum: {call: add, inputs: [first, other]}", r"GS132.*op 'sum' runs on no data set"),
        ("twice: {call: neg, inputs: first, dataset: two}", r"GS132.*batches of `two`, where 'first' is not computed"),
        ("lost: {update: m, loss: first, dataset: ['!one', '!two']}", r"GS132.*op 'lost' runs on no data set"),
        ("odd: {call: neg, inputs: x, dataset: 3rd}", r"GS044.*expected the name of a data set"),
    ],
)
def test_values_of_two_sets_do_not_meet(op: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(SPEC.replace("FIELDS", op))
