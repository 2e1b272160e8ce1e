"""Verdicts cover what an optimizer is given; penalties belong to the first update of a model that is applied."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from compiler import compile_step
from compiler.ir.instructions import CheckFinite, Transform
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime import Step
from tests.features.steps import build_step, weights

TWICE = """
graphspec: 1
name: twice
precision: {loss_scale: 8}
inputs: {first: {shape: []}, second: {shape: []}}
models: {v: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: 0.25}, regularizer: {l2: 0.5}}}
ops:
  value: {forward: v}
  total: {call: sum, inputs: value}
  one: {call: mul, inputs: [total, first]}
  two: {call: mul, inputs: [total, second]}
  step_one: {update: v, loss: one, on_overflow: own}
  step_two: {update: v, loss: two, after: step_one, on_overflow: own}
outputs: [total]
"""
GIVEN = """
graphspec: 1
name: given
precision: {loss_scale: {initial: 8, growth_steps: 1000}}
inputs: {slope: {shape: []}, factor: {shape: []}}
models: {v: {parameter: {shape: [2], init: 1.0}, optimizer: {name: sgd, lr: 0.25}}}
ops:
  value: {forward: v}
  total: {call: sum, inputs: value}
  loss: {call: mul, inputs: [total, slope]}
  raw: {gradient: loss, wrt: v}
  scaled: {call: mul, inputs: [raw, factor]}
  step: {update: v, gradients: scaled}
outputs: [total]
"""
INF = float("inf")


def take(step: Step, **numbers: float) -> list[float]:
    """Take a step with some numbers as inputs; return the weights."""
    step({name: np.asarray(float(value)) for name, value in numbers.items()})
    return weights(step)["v.value"].tolist()


def look_at(text: str, settings: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Return the sets that each check of a step reads."""
    program = compile_step(load(text, settings)).program
    instructions = [each for mode in program.modes for function in mode.functions for each in function.instructions]
    return sorted(each.gradients for each in instructions if isinstance(each, CheckFinite))


@pytest.mark.parametrize("slopes", [(1, 1), (INF, 1), (1, INF), (INF, INF), (float("nan"), 1)])
def test_the_first_update_that_is_applied_adds_the_penalty(slopes: tuple[float, float], backend: str) -> None:
    step = build_step(TWICE, backend)
    value = 1.0
    for first, second in ((1.0, 1.0), slopes, (1.0, 1.0)):
        good = [slope for slope in (first, second) if np.isfinite(slope)]
        value -= 0.25 * (sum(good) + (value if good else 0.0))
        assert np.allclose(take(step, first=first, second=second), value, rtol=1e-12)


COUNT = 12
BELOW = -1000.0
"""Less than all products, so that the slope of a distance from it is that of the product."""


def update_often(**policies: str) -> str:
    """Return a document of many updates of one model, each skipped alone unless a policy says otherwise."""
    made = {
        **json.loads(json.dumps(HEADER)),
        "inputs": {f"s{at}": {"shape": ["batch"]} for at in range(COUNT)},
        "ops": {"value": {"forward": "v"}, "total": {"call": "sum", "inputs": "value"}},
        "outputs": ["total"],
    }
    for at in range(COUNT):
        made["ops"][f"p{at}"] = {"call": "mul", "inputs": ["total", f"s{at}"]}
        made["ops"][f"l{at}"] = {"loss": "l1", "inputs": [f"p{at}", BELOW]}
        made["ops"][f"u{at}"] = {"update": "v", "loss": f"l{at}", "on_overflow": policies.get(f"u{at}", "own")}
        made["ops"][f"u{at}"] |= {"after": [f"u{at - 1}"]} if at else {}
    return json.dumps(made)


HEADER = {
    "graphspec": 1,
    "name": "often",
    "precision": {"loss_scale": 8},
    "models": {
        "v": {
            "parameter": {"shape": [2], "init": 1.0},
            "optimizer": {"name": "sgd", "lr": 0.25},
            "regularizer": {"l2": 0.5},
        }
    },
}


@pytest.mark.parametrize("policies", [{}, {"u0": "group", "u6": "group"}, {"u3": "group", "u4": "group"}])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_first_of_many_updates_that_is_applied_adds_the_penalty(policies, micro_batches, backend: str) -> None:
    step = build_step(update_often(**policies), backend, [f"micro_batches={micro_batches}"])
    value = 1.0
    for bad in ([], [0], range(6), range(COUNT - 1), range(COUNT), [0, 1, 2, 3, 4, 6], [3, 9], []):
        held = {f"u{at}" for at in bad}
        held |= policies.keys() if held & policies.keys() else set()
        good = [at for at in range(COUNT) if f"u{at}" not in held]
        slopes = {f"s{at}": np.full(2, INF if at in bad else 0.1 * (at + 1)) for at in range(COUNT)}
        value -= 0.25 * (sum(0.1 * (at + 1) for at in good) + (value if good else 0.0))
        step(slopes)
        assert np.allclose(weights(step)["v.value"], value, rtol=1e-12), bad


def test_what_many_updates_say_of_penalties_is_joined() -> None:
    plan = compile_step(load(update_often()))
    assert [line.split("any_finite")[1].strip() for line in str(plan).splitlines() if " any_finite " in line] == [
        "v.penalized#u5 = u0.finite or u1.finite or u2.finite or u3.finite or u4.finite",
        "v.penalized#u9 = v.penalized#u5 or u5.finite or u6.finite or u7.finite or u8.finite",
    ]


def test_a_cycle_through_what_is_joined_names_the_verdicts_themselves() -> None:
    """The last update begins before the first is applied, and needs to know whether the second is."""
    made = json.loads(update_often())
    for at in range(1, COUNT - 1):
        made["ops"] |= {
            f"f{at}": {"forward": "v", "after": [f"u{at - 1}"]},
            f"t{at}": {"call": "sum", "inputs": f"f{at}"},
            f"p{at}": {"call": "mul", "inputs": [f"t{at}", f"s{at}"]},
        }
    made["models"]["v"]["parameter"] = {"shape": [2], "init": 1.0}
    made["ops"]["total"] = {"call": "norm", "inputs": "value"}  # its gradient reads the weights
    with pytest.raises(SpecError, match="E-TWO-VERSIONS") as refused:
        compile_step(load(json.dumps(made)))
    messages = [each.message for each in refused.value.diagnostics if each.code == "E-TWO-VERSIONS"]
    assert messages
    assert not any("penalized" in each for each in messages)


def test_an_update_applies_no_gradient_of_those_that_may_add_its_penalties() -> None:
    """Their verdicts are no reason to warn that it applies a gradient of older weights."""
    fresh = json.loads(update_often())
    for at in range(1, COUNT):
        fresh["ops"] |= {
            f"f{at}": {"forward": "v", "after": [f"u{at - 1}"]},
            f"t{at}": {"call": "sum", "inputs": f"f{at}"},
            f"p{at}": {"call": "mul", "inputs": [f"t{at}", f"s{at}"]},
        }
    assert [each.code for each in compile_step(load(json.dumps(fresh))).warnings] == []


def test_updates_of_one_group_decide_nothing_about_penalties() -> None:
    text = TWICE.replace(", on_overflow: own", "")
    program = compile_step(load(text)).program
    transforms = [each for each in program.mode("train").functions[0].instructions if isinstance(each, Transform)]
    assert [(each.output, each.unless) for each in transforms] == [("step_one.regularized", ())]


ABSENT = """
graphspec: 1
name: absent
precision: {loss_scale: 8}
inputs: {first: {shape: []}, second: {shape: []}}
models:
  v:
    layers: [{linear: {out: 1, bias: false}}, {linear: {out: 1, bias: false}}]
    optimizer: {name: sgd, lr: 0.25, momentum: 0.5}
    regularizer: {l2: 0.5}
ops:
  x: {call: reshape, inputs: second, args: {shape: [1, 1]}}
  out: {forward: v, inputs: x, outputs: [out, {inner: {tap: "0"}}]}
  outside: {call: sum, inputs: out}
  one: {call: mul, inputs: [outside, first]}
  two: {call: sum, inputs: inner}
  step_one: {update: v, loss: one, on_overflow: own}
  step_two: {update: v, loss: two, after: step_one, on_overflow: own, missing: skip}
outputs: [one]
"""


@pytest.mark.parametrize("first", [1.0, INF])
def test_a_penalty_alone_is_a_gradient_only_where_it_is_added(first: float, backend: str) -> None:
    step = build_step(ABSENT, backend)
    take_one(step, first=1, second=1)
    (inner, outer), speed = take_one(step), find_speed(step)
    found, _ = take_one(step, first=first, second=1), find_speed(step)
    slope = outer if first == INF else inner + outer  # of 2 * 0.5 * outer, and of the product of both
    assert np.allclose(found[1], outer - 0.25 * (0.5 * speed + slope), rtol=1e-12)
    assert np.allclose(find_speed(step), 0.5 * speed + slope, rtol=1e-12)


def take_one(step: Step, **numbers: float) -> tuple[float, float]:
    """Take a step, if there are numbers for one; return the weights of both layers."""
    if numbers:
        step({name: np.asarray(float(value)) for name, value in numbers.items()})
    found = weights(step)
    return found["v.0.weight"].item(), found["v.1.weight"].item()


def find_speed(step: Step) -> float:
    """Return the momentum of the outer layer."""
    (speed,) = step.optimizers["v"].slots["1.weight"].values()
    return np.asarray(speed).item()


def test_what_a_transform_makes_infinite_is_not_applied(backend: str) -> None:
    step = build_step(GIVEN, backend)
    assert take(step, slope=1, factor=2) == [0.5, 0.5]
    for slope, factor in ((1, INF), (1, float("nan")), (INF, 0.0)):
        assert take(step, slope=slope, factor=factor) == [0.5, 0.5]
        report = step.report
        assert report.updates["step"].skipped
        assert report.updates["step"].nonfinite == "v.value"
        assert report.scale_after == report.scale_before / 2
    assert take(step, slope=1, factor=1) == [0.25, 0.25]
    assert step.report.scale_after == 1.0
    assert step.optimizers["v"].iterations == 2


@pytest.mark.parametrize("word", ["own", "group"])
def test_a_slope_that_is_not_finite_holds_the_update(word: str, backend: str) -> None:
    penalty = "models.v.regularizer={l2: {schedule: piecewise, at: {0: 0.5, 1: 1.7e308}}}"
    step = build_step(
        TWICE.replace("own", word), backend, [penalty, "precision.loss_scale={initial: 8, growth_steps: 9}"]
    )
    assert np.allclose(take(step, first=1, second=1), 1 - 0.25 * 3)
    before = take(step, first=1, second=1)  # twice the factor is no number of float64
    assert np.allclose(before, 0.25)
    assert step.report.scale_after == 4.0
    assert [each.skipped for each in step.report.updates.values()] == [True, True]


def test_a_clip_by_value_hides_no_infinity(backend: str) -> None:
    text = GIVEN.replace("{update: v, gradients: scaled}", "{update: v, gradients: scaled, clip: {value: 1.0}}")
    step = build_step(text, backend)
    assert take(step, slope=INF, factor=1) == [1.0, 1.0]
    assert take(step, slope=1, factor=INF) == [1.0, 1.0]
    assert take(step, slope=3, factor=1) == [0.75, 0.75]


def test_what_is_made_of_a_window_is_checked_when_it_is_applied(backend: str) -> None:
    text = GIVEN.replace("gradients: scaled}", "gradients: scaled, accumulate: {steps: 2, reduce: sum}}")
    step = build_step(text, backend)
    assert take(step, slope=1, factor=INF) == [1.0, 1.0]  # the factor is that of the step in which the window is full
    assert not step.report.updates["step"].skipped
    assert take(step, slope=1, factor=INF) == [1.0, 1.0]
    assert step.report.updates["step"].skipped
    assert step.report.scale_after == 4.0
    take(step, slope=INF, factor=1)
    assert step.report.scale_after == 2.0
    assert take(step, slope=1, factor=1) == [0.75, 0.75]  # what the window held is lost; one good step is in this one


def test_an_empty_window_is_no_overflow_of_its_own(backend: str) -> None:
    text = GIVEN.replace("gradients: scaled}", "gradients: scaled, accumulate: 2}")
    step = build_step(text, backend)
    take(step, slope=INF, factor=1)
    take(step, slope=INF, factor=1)
    assert step.report.scale_after == 2.0
    assert step.report.updates["step"].skipped


def test_one_check_where_nothing_can_hide_or_make_an_infinity() -> None:
    plain = TWICE.replace(", regularizer: {l2: 0.5}", "")
    clipped = plain.replace("loss: one,", "loss: one, clip: {norm: 1.0},").replace(
        "loss: two,", "loss: two, clip: {value: 1},"
    )
    assert look_at(plain) == look_at(clipped) == [("step_one",), ("step_two",)]
    assert look_at(TWICE) == [("step_one.regularized",), ("step_two.regularized",)]
    assert look_at(GIVEN) == [("raw", "scaled")]


def test_an_error_ends_the_run_for_what_comes_out_of_a_window_too(backend: str) -> None:
    text = GIVEN.replace("gradients: scaled}", "gradients: scaled, accumulate: 2, on_overflow: error}")
    step = build_step(text, backend)
    take(step, slope=1, factor=INF)
    with pytest.raises(Exception, match="GS280"):
        take(step, slope=1, factor=INF)
