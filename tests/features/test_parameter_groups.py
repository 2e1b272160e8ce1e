"""`groups` give some parameters of a model another learning rate or weight decay, by patterns of their names."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("C8")

SPEC = """
graphspec: 1
name: groups
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    layers: [{linear: 2}, tanh, {linear: 1}]
    optimizer: {OPTIMIZER}
    groups: [{match: bias$, weight_decay: 0.0}, {match: "^2.weight", lr_scale: 10, weight_decay: 0.5}]
ops:
  out: {forward: net, inputs: x}
  error: {call: mean, inputs: out}
  step: {update: net, loss: error}
"""
RULES = {
    "sgd": {"momentum": 0.9, "weight_decay": 0.1},
    "adam": {"weight_decay": 0.1},
    "adamw": {"weight_decay": 0.1},
    "adagrad": {"weight_decay": 0.1},
    "rmsprop": {"momentum": 0.5, "weight_decay": 0.1},
    "adadelta": {"weight_decay": 0.1},
    "adamax": {"weight_decay": 0.1},
}
CLASSES = {"rmsprop": "RMSprop", "adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
X = np.array([[0.3, -0.2], [0.1, 0.7], [-0.4, 0.5]])


def train_by_hand(rule: str, start: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """Return the weights after some steps of torch.optim with `param_groups`."""
    import torch

    named = {name.removeprefix("net."): torch.tensor(value, requires_grad=True) for name, value in start.items()}
    plain, biases = [named["0.weight"]], [named["0.bias"], named["2.bias"]]
    groups = [{"params": plain}, {"params": biases, "weight_decay": 0.0}]
    groups.append({"params": [named["2.weight"]], "lr": 0.1, "weight_decay": 0.5})
    made = getattr(torch.optim, CLASSES.get(rule, rule.capitalize()))(groups, lr=0.01, **RULES[rule])
    for _ in range(steps):
        hidden = torch.tanh(torch.tensor(X) @ named["0.weight"].T + named["0.bias"])
        error = (hidden @ named["2.weight"].T + named["2.bias"]).mean()
        for each, slope in zip(named.values(), torch.autograd.grad(error, list(named.values())), strict=True):
            each.grad = slope
        made.step()
    return {f"net.{name}": value.detach().numpy() for name, value in named.items()}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("rule", RULES)
def test_they_are_those_of_param_groups(rule: str, backend: str) -> None:
    options = ", ".join(f"{key}: {value}" for key, value in {"name": rule, "lr": 0.01, **RULES[rule]}.items())
    step = build_step(SPEC.replace("OPTIMIZER", options), backend)
    expected = train_by_hand(rule, dict(weights(step)), 5)
    for _ in range(5):
        step({"x": X})
    assert all(np.abs(weights(step)[name] - value).max() < 1e-10 for name, value in expected.items())


JOINT = """
graphspec: 1
name: joint
models:
  v0: {parameter: {shape: [2]}, groups: [{match: value, lr_scale: 2}]}
  v1: {parameter: {shape: [2]}}
ops:
  a: {forward: v0}
  b: {forward: v1}
  both: {call: add, inputs: [a, b]}
  cost: {call: sum, inputs: both}
  step: {update: [v0, v1], loss: cost, optimizer: {name: sgd, lr: {schedule: step, from: 1.0, factor: 0.5, every: 1}}}
"""


@pytest.mark.parametrize("match", ["match: value, ", ""])  # without a pattern it is the whole model
def test_the_optimizer_of_an_update_takes_the_groups_of_each_model_and_scales_what_its_schedule_says(match, backend):
    step = build_step(JOINT.replace("match: value, ", match), backend)
    set_weights(step, {"v0.value": [0, 0], "v1.value": [0, 0]})
    step({})
    step({})
    assert np.allclose(weights(step)["v0.value"], [-3, -3])
    assert np.allclose(weights(step)["v1.value"], [-1.5, -1.5])


def test_a_checkpoint_goes_on_where_groups_are_taken_away(backend: str) -> None:
    options = "name: adam, lr: 0.01"
    with_groups = SPEC.replace("OPTIMIZER", options)
    start = with_groups.index("    groups:")
    without = with_groups[:start] + with_groups[with_groups.index("ops:") :]
    first, second = build_step(with_groups, backend), build_step(without, backend)
    first({"x": X})
    second.restore(first.state())
    second({"x": X})
    assert second.state().counters["applied"] == {"net": 2}
