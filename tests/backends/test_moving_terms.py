"""Groups, penalties, constraints and decays whose numbers follow schedules, by numbers that a hand can reckon."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: moving
inputs: {burst: {shape: [batch]}}
models:
  m: {parameter: {shape: [2], init: 1.0}, optimizer: OPTIMIZER, TERMS}
ops:
  value: {forward: m}
  many: {call: sum, inputs: value}
  how: {call: mean, inputs: burst}
  cost: {call: mul, inputs: [many, how]}
  step: {update: m, loss: cost, FIELDS}
"""
SGD = "{name: sgd, lr: 1.0}"
BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
HALVING = "{schedule: step, from: 1.0, factor: 0.5, every: 1}"
HALVING_BY_STEPS = "{schedule: step, from: 1.0, factor: 0.5, every: 1, clock: steps}"


def make(backend: str, terms: str, fields: str = "every: 1", optimizer: str = SGD) -> Step:
    """Return a step that takes 1 from both weights, which begin at 1, times what comes in."""
    return build_step(written(terms, fields, optimizer), backend)


def written(terms: str, fields: str = "every: 1", optimizer: str = SGD) -> str:
    """Return the text of such a step."""
    return SPEC.replace("TERMS", terms).replace("FIELDS", fields).replace("OPTIMIZER", optimizer)


def heights(step: Step, bursts: list[float]) -> list[float]:
    """Return the first weight after every step."""
    found = []
    for burst in bursts:
        step({"burst": np.array([float(burst)])})
        found.append(float(weights(step)["m.value"][0]))
    return found


@BACKENDS
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (f"groups: [{{match: value, lr_scale: {HALVING}}}]", [0, -0.5, -0.75, -0.875]),
        (
            "groups: [{match: value, weight_decay: {schedule: piecewise, at: {0: 0.5, 1: 0, 3: 1}}}]",
            [-0.5, -1.5, -2.5, -1],
        ),
        ("regularizer: {l2: {schedule: piecewise, at: {0: 0.25, 1: 0, 3: 0.5}}}", [-0.5, -1.5, -2.5, -1]),
        ("regularizer: {l1: {schedule: piecewise, at: {0: 0.5, 1: 0, 3: 2}}}", [-0.5, -1.5, -2.5, -1.5]),
        ("constraint: {clip: [{schedule: linear, from: 0.75, to: 0, over: 3}, 1]}", [0.75, 0.5, 0.25, 0]),
        ("constraint: {clip: [0.5, {schedule: linear, from: 0.75, to: 0, over: 3}]}", [0.5, 0.5, 0.25, 0]),
        ("constraint: {max_norm: {schedule: piecewise, at: {0: 3, 2: 1}}, axis: 0}", [0, -1, -(0.5**0.5), -(0.5**0.5)]),
    ],
)
def test_a_number_follows_the_updates(backend: str, terms: str, expected: list[float]) -> None:
    assert heights(make(backend, terms), [1, 1, 1, 1]) == pytest.approx(expected, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize(
    ("schedule", "expected"), [(HALVING, [1, 0, 0, -0.5]), (HALVING_BY_STEPS, [1, 0.5, 0.5, 0.375])]
)
@pytest.mark.parametrize("field", ["groups: [{match: value, lr_scale: NUMBER}]"])
def test_it_counts_updates_or_steps(backend: str, field: str, schedule: str, expected: list[float]) -> None:
    assert heights(make(backend, field.replace("NUMBER", schedule), "every: 2"), [1, 1, 1, 1]) == expected


RULES = ("adam", "adamw", "adamax", "nadam", "lion")


def decay(rule: str, backend: str, betas: list[str]) -> list[float]:
    """Return where some steps take the first weight; other decays, if there are such, take over after two of them."""
    optimizers = [f"{{name: {rule}, lr: 0.1, betas: {each}}}" for each in betas]
    step = make(backend, "regularizer: {l2: 0}", optimizer=optimizers[0])
    found = heights(step, [1.0, -3.0])
    if len(betas) > 1:
        later = make(backend, "regularizer: {l2: 0}", optimizer=optimizers[1])
        later.restore(step.state())
        step = later
    return found + heights(step, [2.0, 0.5])


@BACKENDS
@pytest.mark.parametrize("rule", RULES)
def test_decays_of_running_means_follow_schedules(rule: str, backend: str) -> None:
    first, second = ({"schedule": "piecewise", "at": {"0": one, "2": two}} for one, two in ((0.5, 0.8), (0.9, 0.7)))
    moving = f"[{json.dumps(first)}, {json.dumps(second)}]"
    assert decay(rule, backend, [moving]) == pytest.approx(
        decay(rule, backend, ["[0.5, 0.9]", "[0.8, 0.7]"]), abs=1e-12
    )


@BACKENDS
@pytest.mark.parametrize(
    "terms",
    [
        f"groups: [{{match: value, lr_scale: {HALVING}}}]",
        "regularizer: {l2: {schedule: piecewise, at: {0: 0, 1: 0.25}}}",
        "constraint: {clip: [{schedule: piecewise, at: {0: 0.5, 1: -9}}, 1]}",
    ],
)
def test_an_update_that_is_skipped_does_not_count(backend: str, terms: str) -> None:
    held, plain = (make(backend, terms, "on_overflow: own") for _ in range(2))
    assert heights(held, [np.inf, 1, 1, np.nan, 1])[2::2] == heights(plain, [1, 1, 1])[1:]


@BACKENDS
def test_a_rate_that_is_set_is_scaled_on(backend: str) -> None:
    step = make(backend, f"groups: [{{match: value, lr_scale: {HALVING}}}]")
    heights(step, [1])
    step.optimizers["m"].learning_rate = 4.0
    assert heights(step, [1, 1]) == [-2, -3]


@BACKENDS
def test_a_restored_step_goes_on_where_it_was(backend: str) -> None:
    terms = "groups: [{match: value, lr_scale: HALVING}], regularizer: {l2: HALVING}, constraint: {max_norm: HALVING}"
    terms = terms.replace("HALVING", HALVING)
    step, other = make(backend, terms), make(backend, terms)
    heights(step, [1, 1])
    other.restore(step.state())
    assert heights(step, [1, 1]) == heights(other, [1, 1])


UNUSED = f"""
graphspec: 1
name: unused
inputs: {{x: {{shape: [batch, 2]}}}}
models:
  m:
    class: {{torch: "tests.features.unused:Torch", tensorflow: "tests.features.unused:TensorFlow"}}
    optimizer: {SGD}
    groups: [{{match: "weight|idle", lr_scale: {HALVING}}}]
ops:
  seen: {{forward: m, inputs: x}}
  cost: {{loss: wasserstein, inputs: seen, reduction: sum}}
  step: {{update: m, loss: cost, missing: skip}}
"""


@BACKENDS
def test_groups_with_parameters_that_have_no_gradient_follow(backend: str) -> None:
    step = build_step(UNUSED, backend, dtype="float32")
    found = []
    for _ in range(3):
        step({"x": np.ones((1, 2), "float32")})
        found.append(weights(step)["m.weight"][0, 0])
    assert found == [0, -0.5, -0.75]
    assert (weights(step)["m.idle"] == 1).all()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("change", ["lr_scale", "weight_decay"])
def test_the_groups_of_a_class_follow_too(change: str) -> None:
    found = []
    for optimizer in (SGD, '{class: "torch.optim:SGD", lr: 1.0}'):
        text = written(f"groups: [{{match: value, {change}: {HALVING}}}]", optimizer=optimizer)
        step = build(compile_step(load(text), "torch"), device="cpu", dtype="float64", allow=("torch",))
        found.append(heights(step, [1, 1, 1]))
    assert found[0] == found[1]
    assert len({*found[0]}) == 3


FROM_ZERO, POSITIVE = "expected a number of at least 0", "expected a number greater than 0"
REFUSED = {
    "groups: [{match: value, lr_scale: {schedule: linear, from: -1, over: 3}}]": FROM_ZERO,
    "regularizer: {l2: {schedule: linear, from: 1, to: -1, over: 3}}": FROM_ZERO,
    "constraint: {max_norm: {schedule: linear, from: 1, to: 0, over: 3}}": POSITIVE,
    "betas: [{schedule: linear, from: 0.5, to: 1.5, over: 5}, 0.9]": "a number from 0 to less than 1",
    "betas: [{schedule: linear, from: 0.5, over: 2 run}, 0.9]": "a fraction of the run is at most 1",
    "betas: [{over: 2}, 0.9]": "found a mapping without `schedule`",
    "betas: [{schedule: linear, from: 0.5, over: 3}]": "two numbers from 0 to less than 1",
}


@pytest.mark.parametrize(("field", "message"), REFUSED.items())
def test_values_that_a_field_cannot_have_are_refused(field: str, message: str) -> None:
    is_option = field.startswith("betas")
    text = written("regularizer: {l2: 0}", optimizer=f"{{name: adam, {field}}}") if is_option else written(field)
    with pytest.raises(SpecError) as raised:
        load(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "terms", ["regularizer: {l2: SCHEDULE}", "constraint: {max_norm: SCHEDULE}", "constraint: {clip: [0, SCHEDULE]}"]
)
def test_updates_of_optimizers_that_change_are_not_counted_on(terms: str) -> None:
    terms = terms.replace("SCHEDULE", HALVING)
    with pytest.raises(SpecError, match="E-PACE") as raised:
        make("torch", terms, optimizer="{1: {name: sgd, lr: 1.0}, 3: {name: sgd, lr: 0.1}}")
    assert "write `clock: steps`" in str(raised.value)
