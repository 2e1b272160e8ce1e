"""A group of parameters may have a rule of its own, which steps it with its own options, count and slots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: ruled
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    layers: [{linear: 3}, tanh, {linear: 2}]
    optimizer: {name: muon, lr: 0.05, momentum: 0.8}
    groups: [{match: bias$, optimizer: {name: adam, lr: RATE, betas: [0.5, 0.9]}}]
ops:
  out: {forward: net, inputs: x}
  bent: {call: square, inputs: out}
  error: {call: mean, inputs: bent}
  step: {update: net, loss: error}
"""
FALLING = "{schedule: linear, from: 0.1, to: 0.0, over: 8}"
SPEC = SPEC.replace("RATE", FALLING)
X = np.array([[0.3, -0.2], [0.1, 0.7], [-0.4, 0.5]])
SCALED = SPEC + "precision: {loss_scale: {initial: 4.0}}\n"


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Return the result of the quintic iteration by its action on the singular values."""
    u, values, v = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return (u * values) @ v


def slopes(w: Mapping[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the gradients of the mean of the squared outputs."""
    hidden = np.tanh(x @ w["0.weight"].T + w["0.bias"])
    out = hidden @ w["2.weight"].T + w["2.bias"]
    back = 2 * out / out.size
    inner = (back @ w["2.weight"]) * (1 - hidden**2)
    found = {"0.weight": inner.T @ x, "0.bias": inner.sum(0), "2.weight": back.T @ hidden, "2.bias": back.sum(0)}
    return {name: found[name] for name in w}


def train_by_hand(start: Mapping[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """Return the weights after some steps: matrices by Muon, biases by Adam with a rate of its own."""
    w = {name.removeprefix("net."): value.copy() for name, value in start.items()}
    m, v = {name: 0 * value for name, value in w.items()}, {name: 0 * value for name, value in w.items()}
    for t in range(1, steps + 1):
        for name, g in slopes(w, X).items():
            if name.endswith("weight"):
                m[name] = 0.8 * m[name] + 0.2 * g
                scale = max(1, w[name].shape[0] / w[name].shape[1]) ** 0.5
                w[name] = w[name] * (1 - 0.05 * 0.1) - 0.05 * scale * orthogonal(0.2 * g + 0.8 * m[name])
            else:
                m[name], v[name] = 0.5 * m[name] + 0.5 * g, 0.9 * v[name] + 0.1 * g * g
                lr = 0.1 * (1 - (t - 1) / 8)
                w[name] = w[name] - lr * m[name] / (1 - 0.5**t) / (np.sqrt(v[name] / (1 - 0.9**t)) + 1e-8)
    return {f"net.{name}": value for name, value in w.items()}


def apart(step: Step, expected: Mapping[str, np.ndarray]) -> float:
    return max(float(np.abs(weights(step)[name] - value).max()) for name, value in expected.items())


@pytest.mark.parametrize("text", [SPEC, SCALED], ids=["plain", "scaled"])
def test_each_is_stepped_by_its_rule(text: str, backend: str) -> None:
    step = build_step(text, backend)
    expected = train_by_hand(weights(step), 6)
    for _ in range(6):
        step({"x": X})
    assert apart(step, expected) < 1e-10


def test_it_counts_and_keeps_slots_by_itself(backend: str) -> None:
    step = build_step(SPEC, backend)
    step({"x": X})
    slots = {name.removeprefix("optimizers.") for name in step.state().arrays if name.startswith("optimizers.")}
    own = {f"net.groups.0.{slot}.{name}.bias" for slot in ("exp_avg", "exp_avg_sq") for name in (0, 2)}
    assert slots == own | {f"net.momentum.{name}.weight" for name in (0, 2)}
    assert step.state().counters["applied"] == {"net": 1, "net.groups.0": 1}
    assert step.optimizers["net.groups.0"].learning_rate == pytest.approx(0.1 * 7 / 8)
    assert sorted(step.optimizers["net.groups.0"].slots) == ["0.bias", "2.bias"]


def test_a_checkpoint_goes_on(backend: str) -> None:
    first, second = build_step(SPEC, backend), build_step(SPEC, backend)
    start = dict(weights(first))
    for _ in range(3):
        first({"x": X})
    second.restore(first.state())
    for _ in range(3):
        second({"x": X})
    assert apart(second, train_by_hand(start, 6)) < 1e-10


def test_a_skipped_step_changes_neither(backend: str) -> None:
    step = build_step(SCALED, backend)
    step({"x": X})
    before = step.state().arrays
    step({"x": X * np.inf})
    after = step.state()
    assert all(np.array_equal(before[name], after.arrays[name]) for name in before)
    assert after.counters["applied"] == {"net": 1, "net.groups.0": 1}


def test_a_window_gives_both_its_mean(backend: str) -> None:
    step = build_step(SPEC.replace("loss: error", "loss: error, accumulate: 2"), backend)
    expected = train_by_hand(weights(step), 2)
    for _ in range(4):
        step({"x": X})
    assert apart(step, expected) < 1e-10


def test_frozen_until_then_it_is_not_stepped(backend: str) -> None:
    text = SPEC.replace("match: bias$,", "match: bias$, frozen: {until: 2 steps},")
    step = build_step(text, backend)
    before = weights(step)["net.0.bias"].copy()
    for _ in range(2):
        step({"x": X})
    assert np.array_equal(weights(step)["net.0.bias"], before)
    step({"x": X})
    assert not np.array_equal(weights(step)["net.0.bias"], before)


def test_a_constraint_holds_for_all(backend: str) -> None:
    step = build_step(SPEC.replace("loss: error", "loss: error, constraint: {clip: [-0.1, 0.1]}"), backend)
    step({"x": X})
    assert max(np.abs(value).max() for value in weights(step).values()) <= 0.1


JOINT = """
graphspec: 1
name: joint
models:
  a: {parameter: {shape: [2]}, groups: [{match: value, lr_scale: 1}]}
  b: {layers: [{linear: {out: 1}}], groups: [{match: bias, optimizer: {name: sgd, lr: 0.5}}]}
inputs: {x: {shape: [batch, 2]}}
ops:
  w: {forward: a}
  out: {forward: b, inputs: x}
  one: {call: sum, inputs: w}
  two: {call: sum, inputs: out}
  cost: {call: add, inputs: [one, two]}
  step: {update: [a, b], loss: cost, optimizer: {name: sgd, lr: 0.1}}
"""


def test_it_is_apart_in_an_optimizer_of_several_models_too(backend: str) -> None:
    step = build_step(JOINT, backend)
    set_weights(step, {"a.value": [0, 0], "b.0.weight": [[0, 0]], "b.0.bias": [0]})
    step({"x": np.ones((1, 2))})
    found = weights(step)
    assert np.allclose(found["a.value"], -0.1)
    assert np.allclose(found["b.0.weight"], -0.1)
    assert np.allclose(found["b.0.bias"], -0.5)
    assert [*step.optimizers] == ["step", "step.b.groups.0"]


TWICE = """
graphspec: 1
name: twice
models:
  a: {parameter: {shape: [3]}, optimizer: {name: sgd, lr: 0.1}}
  b:
    layers: [{linear: {out: 1}}]
    optimizer: {name: sgd, lr: 0.1}
    groups: [{match: bias, optimizer: {name: sgd, lr: 0.5}}]
inputs: {x: {shape: [batch, 2]}}
ops:
  w: {forward: a}
  out: {forward: b, inputs: x}
  one: {call: sum, inputs: w}
  two: {call: sum, inputs: out}
  cost: {call: add, inputs: [one, two]}
  first: {update: [a, b], loss: cost}
  second: {update: b, loss: two, after: first}
"""


def test_updates_of_other_models_find_its_gradients_in_sets_of_theirs(backend: str) -> None:
    step = build_step(TWICE, backend)
    set_weights(step, {"a.value": [0, 0, 0], "b.0.weight": [[0, 0]], "b.0.bias": [0]})
    step({"x": np.ones((1, 2))})
    found = weights(step)
    assert np.allclose(found["a.value"], -0.1)
    assert np.allclose(found["b.0.weight"], -0.2)
    assert np.allclose(found["b.0.bias"], -1.0)


def test_a_plan_names_it() -> None:
    text = compile_step(load(SPEC), "torch").text("train")
    assert "net: 0.bias, 2.bias: stepped by net.groups.0 (match: bias$)" in text
    assert "net <- net.optimizer(step); net <- net.groups.0.optimizer(step)" in text


OWN = "{match: bias$, optimizer: {name: adam, lr: " + FALLING + ", betas: [0.5, 0.9]}}"
REFUSED = {
    "a rate": ("optimizer: {name: adam,", "lr_scale: 2, optimizer: {name: adam,", "GS056.*`lr_scale`"),
    "a decay": ("optimizer: {name: adam,", "weight_decay: 0.1, optimizer: {name: adam,", "GS056.*`weight_decay`"),
    "for ever": ("optimizer: {name: adam,", "frozen: true, optimizer: {name: adam,", "GS056.*nothing steps frozen"),
    "a class": (OWN, "{match: bias$, optimizer: {class: 'torch.optim:SGD', lr: 0.1}}", "GS056.*one rule by its name"),
    "by epochs": ("{name: muon, lr: 0.05, momentum: 0.8}", "{1: sgd, 2: adam}", "GS056.*changes by epochs"),
    "shared": ("loss: error}", "loss: error, shared: sum}", "GS056.*shared"),
    "nothing left": (
        OWN,
        "{match: bias$, optimizer: adam}, {match: weight$, optimizer: sgd}",
        "E-MATCH.*leave nothing",
    ),
    "a vector": (OWN, "{match: bias$, lr_scale: 2}", "E-SHAPE.*muon steps matrices, found 'net.0.bias'"),
    "no decay": (
        "{name: muon, lr: 0.05, momentum: 0.8}\n    groups: [",
        "ftrl\n    groups: [{match: weight, weight_decay: 0.1}, ",
        "GS112.*`ftrl`",
    ),
    "rate zero": (
        "{name: muon, lr: 0.05, momentum: 0.8}\n    groups: [",
        "ftrl\n    groups: [{match: weight, lr_scale: 0}, ",
        "GS113.*`lr_scale`",
    ),
    "an option": ("betas: [0.5, 0.9]}", "rho: 0.5}", "GS112.*'rho'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_have_is_refused(case: str, backend: str) -> None:
    old, new, message = REFUSED[case]
    assert old in SPEC
    with pytest.raises(SpecError, match=f"(?s){message}"):
        compile_step(load(SPEC.replace(old, new)), backend)
