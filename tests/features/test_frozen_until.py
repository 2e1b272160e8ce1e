"""`frozen: {until: ...}`: parameters are left alone until a moment, and then trained like the others."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import Pace, compile_step
from compiler.ir.instructions import Forward
from graphspec import SpecError, load
from runtime import Step
from tests.features.paced import build_paced
from tests.features.steps import build_step, set_weights, weights

LINE = """
graphspec: 1
name: thaw
inputs: {x: {shape: [batch, 1]}}
models:
  net:
    layers: [{linear: 1}]
    optimizer: {name: sgd, lr: 0.1}
    groups: [{match: weight, frozen: {until: 2 steps}}]
ops:
  out: {forward: net, inputs: x}
  error: {call: mean, inputs: out}
  step: {update: net, loss: error}
"""
X = {"x": np.array([[2.0]])}
"""The slope by the weight is 2, that by the bias 1."""
FROM_ZERO = {"net.0.weight": [[0.0]], "net.0.bias": [0.0]}


def walk(step: Step, steps: int) -> list[tuple[float, float]]:
    """Return the weight and the bias after each of some steps."""
    found: list[tuple[float, float]] = []
    for _ in range(steps):
        step(X)
        found.append((float(weights(step)["net.0.weight"].item()), float(weights(step)["net.0.bias"].item())))
    return found


def begin(backend: str, *settings: str, start: dict = FROM_ZERO) -> Step:
    """Return a step whose weights are known, in epochs of two steps of one row."""
    step = build_paced(LINE, backend, settings)
    set_weights(step, start)
    return step


def test_they_are_left_alone_until_then_and_stepped_from_then_on(backend: str) -> None:
    found = walk(begin(backend), 4)
    assert np.allclose(found, [(0, -0.1), (0, -0.2), (-0.2, -0.3), (-0.4, -0.4)])


@pytest.mark.parametrize(("moment", "last"), [("1 epochs", 2), ("1.5 epochs", 3), ("3 samples", 3), ("1 steps", 1)])
def test_a_moment_is_any_duration(backend: str, moment: str, last: int) -> None:
    found = walk(begin(backend, f"models.net.groups.0.frozen.until={moment}"), 5)
    assert [weight != 0 for weight, _ in found] == [number > last for number in range(1, 6)]


def test_updates_are_those_of_the_model(backend: str) -> None:
    found = walk(begin(backend, "models.net.groups.0.frozen.until=2 updates", "ops.step.every=2"), 6)
    assert np.allclose([weight for weight, _ in found], [0, 0, 0, 0, 0, -0.2])


def test_the_others_keep_their_slots_and_the_optimizer_its_one_count(backend: str) -> None:
    found = walk(begin(backend, "models.net.optimizer={name: adam, lr: 0.1}"), 3)
    first, second = 0.1 * 2 / (1 - 0.9**3), 0.001 * 4 / (1 - 0.999**3)
    assert np.allclose(found[-1], (-0.1 * first / (np.sqrt(second) + 1e-8), -0.3))


def test_momentum_of_the_others_goes_on_and_theirs_begins(backend: str) -> None:
    found = walk(begin(backend, "models.net.optimizer={name: sgd, lr: 0.1, momentum: 0.5}"), 4)
    assert np.allclose(found, [(0, -0.1), (0, -0.25), (-0.2, -0.425), (-0.5, -0.6125)])


def test_nothing_decays_penalizes_or_constrains_them_before(backend: str) -> None:
    settings = (
        "models.net.optimizer={name: sgd, lr: 0.1, weight_decay: 0.5}",
        "models.net.regularizer={l2: 1.0}",
        "models.net.constraint={clip: [-1, 1]}",
    )
    found = walk(begin(backend, *settings, start={"net.0.weight": [[5.0]], "net.0.bias": [0.0]}), 3)
    assert [weight for weight, _ in found] == [5, 5, 1]


def test_a_clip_measures_what_is_trained(backend: str) -> None:
    found = walk(begin(backend, "ops.step.clip={norm: 0.5}"), 3)
    length = np.hypot(2, 1)
    assert np.allclose(found, [(0, -0.05), (0, -0.1), (-0.05 * 2 / length, -0.1 - 0.05 / length)])


def test_all_of_a_model_may_be_frozen_for_some_time(backend: str) -> None:
    found = walk(begin(backend, "models.net.groups.0.match=."), 3)
    assert np.allclose(found, [(0, 0), (0, 0), (-0.2, -0.1)])


def test_zeros_for_what_a_loss_misses_are_not_zeros_for_what_is_frozen(backend: str) -> None:
    settings = ("models.net.optimizer={name: sgd, lr: 0.1, weight_decay: 0.5}", "ops.step.missing=zero")
    step = begin(backend, *settings, start={"net.0.weight": [[5.0]], "net.0.bias": [0.0]})
    assert [weight for weight, _ in walk(step, 2)] == [5, 5]


def test_a_window_over_the_moment_has_what_was_gathered_behind_it(backend: str) -> None:
    found = walk(begin(backend, "ops.step.accumulate=3"), 6)
    assert np.allclose(found[2], (-0.1 * 2 / 3, -0.1))
    assert np.allclose(found[5], (-0.1 * 2 / 3 - 0.2, -0.2))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_run_goes_on_from_a_checkpoint_before_and_behind_the_moment(backend: str, cut: int) -> None:
    settings = ("models.net.optimizer={name: adam, lr: 0.1}",)
    step, other = begin(backend, *settings), begin(backend, *settings)
    walk(step, cut)
    other.restore(step.state())
    assert walk(other, 3) == walk(step, 3)


def test_what_groups_say_besides_holds_from_then_on(backend: str) -> None:
    found = walk(begin(backend, "models.net.groups.0.lr_scale=3"), 3)
    assert np.allclose(found, [(0, -0.1), (0, -0.2), (-0.6, -0.3)])


def test_a_set_of_gradients_has_no_part_for_them_until_then(backend: str) -> None:
    text = LINE.replace("step: {update: net, loss: error}", "step: {update: net, gradients: both}\n  SETS").replace(
        "SETS", "one: {gradient: error, wrt: net}\n  both: {call: add, inputs: [one, one]}"
    )
    step = build_paced(text, backend)
    set_weights(step, FROM_ZERO)
    assert np.allclose(walk(step, 3), [(0, -0.2), (0, -0.4), (-0.4, -0.6)])


def test_a_moment_that_nobody_can_count_is_refused(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-PACE\]: `until: 1 epochs` of a group of model 'net' cannot be counted"):
        build_step(LINE, backend, ("models.net.groups.0.frozen.until=1 epochs",))


def test_the_plan_tells_until_when(backend: str) -> None:
    plan = compile_step(load(LINE, ["models.net.groups.0.frozen.until=3 epochs"]), backend, pace=Pace(epoch=7))
    (group,) = plan.to_json()["groups"]
    assert (group["frozen"], group["frozen_until"], group["parameters"]) == (False, 21, ["0.weight"])
    assert "'weight' of net is frozen through step 21 (until: 3 epochs)" in str(plan)


TWO = """
graphspec: 1
name: tune
inputs: {x: {shape: [batch, 1]}}
models:
  body:
    layers: [{linear: {out: 1, bias: false}}]
    optimizer: {name: sgd, lr: 0.1}
    groups: [{match: ., frozen: {until: 2 steps}}]
  head: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1}}
ops:
  inner: {forward: body, inputs: x}
  out: {forward: head, inputs: inner}
  error: {call: mean, inputs: out}
  step: {update: [body, head], loss: error}
"""


def test_a_model_that_is_frozen_whole_runs_without_a_graph(backend: str) -> None:
    functions = compile_step(load(TWO), backend).program.mode("train").functions
    graphs = [[each.graph for each in one.instructions if isinstance(each, Forward)] for one in functions]
    assert sorted(graphs) == [[False, True], [True, True]]


def test_what_stands_behind_a_frozen_model_is_trained(backend: str) -> None:
    step = build_step(TWO, backend)
    set_weights(step, {"body.0.weight": [[1.0]], "head.0.weight": [[1.0]]})
    body, head = 1.0, 1.0
    for number in range(1, 5):
        step(X)
        body, head = body - 0.1 * 2 * head * (number > 2), head - 0.1 * 2 * body
        found = weights(step)
        assert np.allclose([found["body.0.weight"].item(), found["head.0.weight"].item()], [body, head]), number
