"""The average that a schedule-free optimizer keeps stands in for the model: it is evaluated and exported."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: free
inputs: {x: {shape: [batch, 3]}, t: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {OPTIMIZER}}}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t]}
  step: {update: net, loss: loss}
  average: {ema: net, schedule_free: true, use: {eval: swap}}
outputs: [y]
"""
RULES = {
    "schedule_free_sgd": "name: schedule_free_sgd, lr: 0.05, momentum: 0.8",
    "schedule_free_adamw": "name: schedule_free_adamw, lr: 0.05, betas: [0.7, 0.99]",
}
SHARES = {"schedule_free_sgd": 0.8, "schedule_free_adamw": 0.7}


def batch(number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(number)
    return {"x": random.normal(size=(4, 3)), "t": random.normal(size=(4, 1))}


def train_by_hand(rule: str, start: dict[str, np.ndarray], steps: int) -> tuple[dict, dict]:
    """Return the weights y and the average x: x is the mean of what z was after every update."""
    y, z, past = dict(start), dict(start), []
    v = {name: 0 * value for name, value in start.items()}
    for t in range(1, steps + 1):
        x, target = batch(t)["x"], batch(t)["t"]
        back = 2 * (x @ y["weight"].T + y["bias"] - target) / target.size
        for name, g in {"weight": back.T @ x, "bias": back.sum(0)}.items():
            v[name] = 0.99 * v[name] + 0.01 * g * g
            is_plain = rule == "schedule_free_sgd"
            z[name] = z[name] - 0.05 * (g if is_plain else g / (np.sqrt(v[name] / (1 - 0.99**t)) + 1e-8))
        past.append(dict(z))
        mean = {name: np.mean([each[name] for each in past], axis=0) for name in z}
        y = {name: (1 - SHARES[rule]) * z[name] + SHARES[rule] * mean[name] for name in z}
    return y, mean


def make(rule: str, backend: str, *more: tuple[str, str]):
    text = SPEC.replace("OPTIMIZER", RULES[rule])
    for old, new in more:
        assert old in text
        text = text.replace(old, new)
    return build_step(text, backend)


def start_of(step) -> dict[str, np.ndarray]:
    return {name: weights(step)[f"net.0.{name}"] for name in ("weight", "bias")}


@pytest.mark.parametrize("rule", RULES)
def test_training_has_y_and_evaluation_x(rule: str, backend: str) -> None:
    step = make(rule, backend)
    start = start_of(step)
    for number in range(1, 7):
        step(batch(number))
    y, x = train_by_hand(rule, start, 6)
    found = weights(step)
    for name in y:
        assert np.abs(found[f"net.0.{name}"] - y[name]).max() < 1e-12
        assert np.abs(found[f"average.0.{name}"] - x[name]).max() < 1e-12
    seen = batch(99)
    shown = step.numpy(step(seen, "eval")["y"])
    assert np.abs(shown - (seen["x"] @ x["weight"].T + x["bias"])).max() < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_after_some_steps_it_is_whole_and_a_skipped_step_changes_nothing(rule: str, backend: str) -> None:
    step = make(rule, backend, ("schedule_free: true,", "schedule_free: true, every: 3,"))
    start = start_of(step)
    for number in range(1, 4):
        step(batch(number))
    _, x = train_by_hand(rule, start, 3)
    assert all(np.abs(weights(step)[f"average.0.{name}"] - x[name]).max() < 1e-12 for name in x)
    held = make(rule, backend, ("outputs: [y]", "outputs: [y]\nprecision: {loss_scale: {initial: 2.0}}"))
    start = start_of(held)
    for number in (1, 2):
        held(batch(number))
    held({**batch(7), "x": batch(7)["x"] * np.inf})
    _, x = train_by_hand(rule, start, 2)
    assert all(np.abs(weights(held)[f"average.0.{name}"] - x[name]).max() < 1e-12 for name in x)


def test_a_group_of_another_rule_is_copied(backend: str) -> None:
    groups = "optimizer: {name: schedule_free_sgd, lr: 0.05, momentum: 0.8}, groups: [{match: bias, optimizer: adam}]"
    step = make("schedule_free_sgd", backend, ("optimizer: {name: schedule_free_sgd, lr: 0.05, momentum: 0.8}", groups))
    for number in range(1, 4):
        step(batch(number))
    found = weights(step)
    assert np.array_equal(found["average.0.bias"], found["net.0.bias"])
    assert not np.allclose(found["average.0.weight"], found["net.0.weight"])


def test_other_rates_for_groups_have_averages_too(backend: str) -> None:
    plain = "optimizer: {name: schedule_free_sgd, lr: 0.05, momentum: 0.8}"
    step = make("schedule_free_sgd", backend, (plain, f"{plain}, groups: [{{match: bias, lr_scale: 2}}]"))
    for number in range(1, 4):
        step(batch(number))
    found = step.state().arrays
    for name in ("weight", "bias"):
        x = found[f"models.net.0.{name}"] - 0.2 * found[f"optimizers.net.lead.0.{name}"]
        assert np.abs(found[f"models.average.0.{name}"] - x).max() < 1e-12


def test_a_plan_says_where_it_comes_from() -> None:
    text = compile_step(load(SPEC.replace("OPTIMIZER", RULES["schedule_free_sgd"])), "torch").text("train")
    assert "average <- average in net.optimizer" in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{OPTIMIZER}", "sgd", "E-EMA-TARGET.*one schedule-free optimizer steps, found 'net'"),
        ("{OPTIMIZER}", "{1: schedule_free_sgd, 2: {name: schedule_free_sgd, lr: 0.1}}", "E-EMA-TARGET.*found 'net'"),
        ("schedule_free: true", "schedule_free: true, decay: 0.9", "GS053.*`schedule_free` and `decay` exclude"),
    ],
)
def test_what_has_no_such_average_is_refused(old: str, new: str, message: str, backend: str) -> None:
    with pytest.raises(SpecError, match=f"(?s){message}"):
        compile_step(load(SPEC.replace(old, new).replace("{OPTIMIZER}", "schedule_free_sgd")), backend)
