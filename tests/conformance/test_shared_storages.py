"""`shared: sum`: one update steps what several hold, with its optimizer, on the sum of the gradients."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.conformance.scenario import BACKENDS
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: heads
models:
  body: {parameter: {shape: [], init: 2.0}, regularizer: MODEL}
  one: {parameter: {shape: [], init: 3.0}, optimizer: {name: sgd, lr: 0.5}}
  two: {parameter: {shape: [], init: 5.0}, optimizer: {name: sgd, lr: 0.25}}
ops:
  b: {forward: body}
  p: {forward: one}
  q: {forward: two}
  left: {call: mul, inputs: [b, p]}
  right: {call: mul, inputs: [b, q]}
  left_loss: {call: sum, inputs: left}
  right_loss: {call: sum, inputs: right}
  step_left: {update: [body, one], loss: left_loss, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}LEFT}
  step_right: {update: [body, two], loss: right_loss, optimizer: {name: sgd, lr: 0.01}RIGHT}
"""
SUM = ", shared: sum"


def make(left: str, right: str, backend: str = "torch", model: str = "{l2: 0.0}"):
    return build_step(SPEC.replace("LEFT", left).replace("RIGHT", right).replace("MODEL", model), backend)


def plan(left: str, right: str):
    return compile_step(load(SPEC.replace("LEFT", left).replace("RIGHT", right).replace("MODEL", "{l2: 0.0}")))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("left", "right", "body"), [(SUM, "", 2 - 0.1 * 8), ("", SUM, 2 - 0.01 * 8)])
def test_the_storage_moves_once_by_the_optimizer_of_the_one_that_says_it(left, right, body, backend) -> None:
    step = make(left, right, backend)
    step({})
    found = weights(step)
    assert np.allclose([found[f"{name}.value"] for name in ("body", "one", "two")], [body, 3 - 0.1 * 2, 5 - 0.01 * 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_gradient_is_added_as_its_own_update_would_apply_it(backend: str) -> None:
    step = make(f"{SUM}, clip: {{value: 1.0}}", ", clip: {value: 0.5}", backend)
    step({})
    assert np.allclose(weights(step)["body.value"], 2 - 0.1 * (1.0 + 0.5))


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_step_in_which_the_other_rests_the_sum_is_the_own_gradient(backend: str) -> None:
    step = make(SUM, ", every: 2", backend)
    step({})
    assert np.allclose(weights(step)["body.value"], 2 - 0.1 * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_step_in_which_only_the_other_fires_the_storage_stays(backend: str) -> None:
    step = make(f"{SUM}, every: 2", "", backend)
    step({})
    assert weights(step)["body.value"] == 2.0
    assert weights(step)["two.value"] != 5.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_its_slots_are_those_of_one_optimizer_and_a_penalty_counts_once(backend: str) -> None:
    step = make(SUM, ", clip: {value: 0.5}", backend, "{l2: 0.25}")
    step({})
    assert np.allclose(weights(step)["body.value"], 2 - 0.1 * (3 + 0.5 + 2 * 0.25 * 2))
    slots = {name for name in step.state().arrays if name.startswith("optimizers.")}
    assert slots == {
        "optimizers.step_left.momentum_buffer.body.value",
        "optimizers.step_left.momentum_buffer.one.value",
    }


def test_the_write_waits_for_the_other_gradient_and_the_plan_says_what_is_added() -> None:
    text = str(plan(SUM, ""))
    assert "step_left.shared = share(step_left.regularized, step_right)" in text
    assert text.index("gradient of right_loss") < text.index("apply     body, one <- step_left.optimizer")
    assert "two <- step_right.optimizer(step_right)" in text


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("", "", "body.params is stepped by two optimizers"),
        (SUM, SUM, "'step_left' and 'step_right' say `shared: sum`"),
    ],
)
def test_exactly_one_of_them_says_it(left: str, right: str, message: str) -> None:
    with pytest.raises(SpecError, match="E-OVERLAP") as caught:
        plan(left, right)
    assert message in str(caught.value)


def refuse(*changes: tuple[str, str]) -> str:
    text = SPEC.replace("LEFT", SUM).replace("RIGHT", "").replace("MODEL", "{l2: 0.0}")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(SpecError) as caught:
        compile_step(load(text))
    return str(caught.value)


def test_an_update_is_left_with_something_to_step() -> None:
    assert "nothing is left for 'step_right'" in refuse(("[body, two]", "[body]"))


def test_where_nothing_is_shared_nobody_says_so() -> None:
    assert "no other optimizer steps what it steps" in refuse(("[body, two]", "[two]"))


def test_a_loss_that_waits_for_the_write_goes_round_in_a_circle() -> None:
    assert "E-CYCLE" in refuse(("q: {forward: two}", "q: {forward: body, after: step_left}"))


def test_a_further_update_with_the_same_optimizer_is_refused() -> None:
    more = "  step_more: {update: body, loss: right_loss, after: step_left}\n"
    text = SPEC.replace("optimizer: {name: sgd, lr: 0.1, momentum: 0.9}LEFT", "shared: sum").replace("RIGHT", "")
    text = text.replace("regularizer: MODEL", "optimizer: sgd") + more
    with pytest.raises(SpecError, match="with the same optimizer"):
        compile_step(load(text))


TIES = """
graphspec: 1
name: tied
inputs: {x: {shape: [batch, 4]}}
models:
  coder: {class: 'tests.properties.users:Coder', args: {size: 4}, traits: TRAITS}, optimizer: {name: adam, lr: 0.1}}
  reader:
    class: 'tests.properties.users:Reader'
    args: {size: 4}
    traits: TRAITS, ties: [coder.weight]}
    optimizer: sgd
ops:
  code: {forward: coder, inputs: x}
  text: {forward: reader, inputs: x}
  one: {loss: mse, inputs: [code, 0.5]}
  two: {loss: mse, inputs: [text, 0.5]}
  step_one: {update: coder, loss: one, shared: sum}
  step_two: {update: reader, loss: two}
"""


def test_a_tied_weight_is_left_to_the_one_and_the_rest_is_stepped_by_each() -> None:
    text = TIES.replace("TRAITS", "{buffers: false, rng: false, batch_coupled: false")
    plan = compile_step(load(text))
    applied = [one for one in plan.to_json()["functions"][0]["instructions"] if one["kind"] == "apply"]
    cells = {one["op"]: {cell.partition("@")[0] for cell in one["writes"]} for one in applied}
    assert cells["step_one"] == {"coder.params", "tied(coder, reader)", "coder.optimizer"}
    assert cells["step_two"] == {"reader.params", "reader.optimizer"}
