"""Numbers of an optimizer and its groups are set between steps, as in `param_groups`, and the count of updates."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.features import traced
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: live
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    layers: [{linear: 2}, tanh, {linear: 1}]
    optimizer: {OPTIMIZER}
GROUPSops:
  out: {forward: net, inputs: x}
  error: {call: mean, inputs: out}
  step: {update: net, loss: error}
"""
GROUPS = "[{match: bias$, weight_decay: 0.0}, {match: '^2.weight', lr_scale: 10, weight_decay: 0.5}]"
X = np.array([[0.3, -0.2], [0.1, 0.7], [-0.4, 0.5]])
RULES: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, object]]] = {
    "sgd": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.3}),
    "adam": ("Adam", {"weight_decay": 0.0}, {"betas": (0.5, 0.9), "weight_decay": 0.2, "eps": 1e-3}),
    "adamw": ("AdamW", {"weight_decay": 0.1}, {"betas": (0.5, 0.9), "weight_decay": 0.3}),
    "rmsprop": ("RMSprop", {"momentum": 0.5}, {"alpha": 0.5, "momentum": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    "adagrad": ("Adagrad", {"lr_decay": 0.1}, {"lr_decay": 0.4, "weight_decay": 0.1, "eps": 1e-3}),
    "adadelta": ("Adadelta", {}, {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}),
    "adamax": ("Adamax", {}, {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    "nadam": ("NAdam", {}, {"betas": (0.5, 0.9), "momentum_decay": 0.1, "weight_decay": 0.1}),
}


def make(backend: str, optimizer: str, groups: str = "") -> Step:
    """Return a step with an optimizer."""
    listed = groups and f"    groups: {groups}\n"
    return build_step(SPEC.replace("OPTIMIZER", optimizer).replace("GROUPS", listed), backend)


def spell(rule: str, options: Mapping[str, object]) -> str:
    """Return an optimizer as the spec has it."""
    return ", ".join([f"name: {rule}, lr: 0.01", *(f"{key}: {value}" for key, value in options.items())])


def train_by_hand(start: Mapping[str, np.ndarray], made: Callable, steps: int, change: Callable) -> dict:
    """Return the weights after steps of an optimizer of torch.optim; ``change(optimizer, number)`` before each."""
    import torch

    named = {name.removeprefix("net."): torch.tensor(value, requires_grad=True) for name, value in start.items()}
    optimizer = made(named)
    for number in range(steps):
        change(optimizer, number)
        hidden = torch.tanh(torch.tensor(X) @ named["0.weight"].T + named["0.bias"])
        error = (hidden @ named["2.weight"].T + named["2.bias"]).mean()
        for each, slope in zip(named.values(), torch.autograd.grad(error, list(named.values())), strict=True):
            each.grad = slope
        optimizer.step()
    return {f"net.{name}": value.detach().numpy() for name, value in named.items()}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("rule", RULES)
def test_options_that_are_set_are_those_of_param_groups(rule: str, backend: str) -> None:
    import torch

    name, written, changes = RULES[rule]

    def change(optimizer: torch.optim.Optimizer, number: int) -> None:
        first = {key: optimizer.param_groups[0][key] for key in changes} if number == 0 else {}
        kept.update(first)
        optimizer.param_groups[0].update(changes if number in (2, 3) else kept)

    kept: dict[str, object] = {}
    step = make(backend, spell(rule, written))
    start = dict(weights(step))
    expected = train_by_hand(
        start, lambda named: getattr(torch.optim, name)(list(named.values()), lr=0.01, **written), 6, change
    )
    options = step.optimizers["net"].options
    before = {key: options[key] for key in changes}
    for number in range(6):
        if number == 2:
            for key, value in changes.items():
                options[key] = value
                assert options[key] == value
        if number == 4:
            for key in changes:
                options[key] = None
            assert {key: options[key] for key in changes} == before
        step({"x": X})
    assert all(np.abs(weights(step)[name] - value).max() < 1e-10 for name, value in expected.items())


@pytest.mark.needs("torch")
@pytest.mark.parametrize("rule", ["sgd", "adam", "rmsprop", "adamax"])
def test_numbers_of_groups_are_those_of_param_groups(rule: str, backend: str) -> None:
    import torch

    def make_groups(named: Mapping[str, torch.Tensor]) -> torch.optim.Optimizer:
        plain, biases = [named["0.weight"]], [named["0.bias"], named["2.bias"]]
        groups = [{"params": plain}, {"params": biases, "weight_decay": 0.0}]
        groups.append({"params": [named["2.weight"]], "lr": 0.1, "weight_decay": 0.5})
        return getattr(torch.optim, RULES[rule][0])(groups, lr=0.01, weight_decay=0.1)

    def change(optimizer: torch.optim.Optimizer, number: int) -> None:
        _, biases, last = optimizer.param_groups
        biases["weight_decay"] = 0.25 if number in (1, 2) else 0.0
        last["lr"] = {1: 0.005, 2: 0.02}.get(number, 0.1)

    step = make(backend, spell(rule, {"weight_decay": 0.1}), GROUPS)
    expected = train_by_hand(dict(weights(step)), make_groups, 5, change)
    options = step.optimizers["net"].options
    for number in range(5):
        options["groups.0.weight_decay"] = 0.25 if number in (1, 2) else None
        options["groups.1.lr_scale"] = {1: 0.5, 2: 2}.get(number)
        step({"x": X})
    assert options["groups.1.lr_scale"] == 10.0
    assert all(np.abs(weights(step)[name] - value).max() < 1e-10 for name, value in expected.items())


def test_a_number_stands_in_for_a_schedule_whose_clock_goes_on(backend: str) -> None:
    falling = "{schedule: linear, from: 0.8, to: 0.0, over: 4}"
    step = make(backend, f"name: adam, betas: [{falling}, 0.9], weight_decay: {falling}")
    options = step.optimizers["net"].options
    assert (options["betas"], options["weight_decay"]) == ((0.8, 0.9), 0.8)
    options["betas"], options["weight_decay"] = [0.25, 0.5], 3
    step({"x": X})
    assert (options["betas"], options["weight_decay"]) == ((0.25, 0.5), 3.0)
    options["betas"] = options["weight_decay"] = None
    assert options["betas"] == pytest.approx((0.6, 0.9))
    assert options["weight_decay"] == pytest.approx(0.6)


def test_graphs_are_traced_anew_once_for_each_number(backend: str) -> None:
    text = SPEC.replace("OPTIMIZER", "name: sgd, momentum: 0.5").replace("GROUPS", "")
    text = text.replace(" mean, inputs: out", " mean, inputs: seen")
    text = text.replace("  error:", '  seen: {call: "tests.features.traced:count", inputs: out}\n  error:')
    step = build_step(text, backend)
    step({"x": X})
    before = traced.COUNT[0]
    for momentum in (0.25, 0.75, None, 0.5):
        step.optimizers["net"].options["momentum"] = momentum
        step({"x": X})
    assert traced.COUNT[0] - before == {"tensorflow": 1, "torch": 4}[backend]


@pytest.mark.parametrize("rule", ["sgd", "adam", "adagrad", "nadam"])
def test_a_count_that_is_set_is_the_one_of_schedules_and_corrections(rule: str, backend: str) -> None:
    """A step whose count is set to that of another one, and whose slots it is given, goes on like that one."""
    momentum = ", momentum: 0.9" if rule == "sgd" else ""
    text = f"name: {rule}{momentum}, lr: {{schedule: linear, from: 0.1, to: 0.0, over: 10}}"
    first, second = make(backend, text), make(backend, text)
    for _ in range(3):
        first({"x": X})
    second.restore(first.state())
    second.optimizers["net"].iterations = 7
    assert second.optimizers["net"].iterations == 7
    assert second.optimizers["net"].learning_rate == pytest.approx(0.03)
    second.optimizers["net"].iterations = 3
    for step in (first, second):
        step({"x": X})
    assert all(np.array_equal(weights(first)[name], each) for name, each in weights(second).items())


@pytest.mark.needs("torch")
@pytest.mark.parametrize("rule", ["adam", "adamax"])
def test_a_correction_goes_by_a_count_that_is_set(rule: str, backend: str) -> None:
    import torch

    def change(optimizer: torch.optim.Optimizer, number: int) -> None:
        for state in optimizer.state.values():
            state["step"].fill_(100 if number == 2 else state["step"].item())

    name, written, _ = RULES[rule]
    step = make(backend, spell(rule, written))
    made = lambda named: getattr(torch.optim, name)(list(named.values()), lr=0.01, **written)  # noqa: E731
    expected = train_by_hand(dict(weights(step)), made, 4, change)
    for number in range(4):
        if number == 2:
            step.optimizers["net"].iterations = 100
        step({"x": X})
    assert step.optimizers["net"].iterations == 102
    assert step.report.updates["step"].iterations == {"net": 102}
    assert step.state().counters["applied"] == {"net": 102}
    assert all(np.abs(weights(step)[name] - value).max() < 1e-10 for name, value in expected.items())


@pytest.mark.sample(5)
@pytest.mark.parametrize("groups", ["", GROUPS])
@pytest.mark.parametrize("rule", [*RULES, "lion"])
def test_at_count_0_an_optimizer_begins_anew(rule: str, groups: str, backend: str) -> None:
    written = (
        {**RULES[rule][1], **({"initial_accumulator_value": 0.5} if rule == "adagrad" else {})} if rule in RULES else {}
    )
    first, second = make(backend, spell(rule, written), groups), make(backend, spell(rule, written), groups)
    second({"x": X})

    set_weights(second, dict(weights(first)))
    second.optimizers["net"].iterations = 0
    for _ in range(2):
        first({"x": X})
        second({"x": X})
    assert all(np.array_equal(weights(first)[name], each) for name, each in weights(second).items())
    second.restore(first.state())


@pytest.mark.parametrize("value", [-1.0, math.nan, "0.1", True, (0.1,)])
def test_what_is_no_value_is_refused_and_changes_nothing(value: object, backend: str) -> None:
    options = make(backend, "name: adam, weight_decay: 0.25", GROUPS).optimizers["net"].options
    for name in ("weight_decay", "groups.1.lr_scale"):
        with pytest.raises(SpecError, match=rf"GS270.*`{name}` of optimizer 'net': expected a number from 0 up"):
            options[name] = value
    with pytest.raises(SpecError, match="expected two numbers from 0 to less than 1"):
        options["betas"] = value
    assert dict(options) == {
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.25,
        "groups.0.weight_decay": 0.0,
        "groups.1.lr_scale": 10.0,
        "groups.1.weight_decay": 0.5,
    }


SAME = "[{match: bias$, lr_scale: 0.5}, {match: '^2.weight', lr_scale: 0.5}]"
FIXED = {
    "a momentum that is 0": ("name: sgd", "", "momentum", "nothing is kept for a momentum"),
    "no momentum any more": ("name: sgd, momentum: 0.5", "", "momentum", "without a momentum nothing would"),
    "dampening of Nesterov's": (
        "name: sgd, momentum: 0.5, nesterov: true",
        "",
        "dampening",
        "has none",
    ),
    "where sums began": ("name: adagrad", "", "initial_accumulator_value", "where the sums began"),
    "an option of another rule": ("name: adam", "", "momentum", "no such number"),
    "the learning rate": ("name: adam", "", "lr", "no entry of `options`"),
    "a group that says nothing": ("name: adam", "", "groups.0.lr_scale", "no such number"),
    "one of groups that are one": (
        "name: adam",
        SAME,
        "groups.0.lr_scale",
        "groups.0.lr_scale and groups.1.lr_scale are",
    ),
}


@pytest.mark.parametrize("case", FIXED)
def test_what_cannot_be_set_is_refused(case: str, backend: str) -> None:
    optimizer, groups, name, message = FIXED[case]
    options = make(backend, optimizer, groups).optimizers["net"].options
    before = dict(options)
    with pytest.raises(SpecError, match=rf"GS270.*`{re.escape(name)}` of optimizer 'net': .*{message}") as raised:
        options[name] = 0.0
    assert raised.value.diagnostics[0].help
    assert dict(options) == before


@pytest.mark.parametrize("count", [-1, 0.5, True, "3", None, 2**53 + 1])
def test_what_is_no_count_is_refused(count: object, backend: str) -> None:
    optimizer = make(backend, "name: adam").optimizers["net"]
    with pytest.raises(SpecError, match=r"GS270.*`iterations` of optimizer 'net': .* is not a whole number"):
        optimizer.iterations = count
    assert optimizer.iterations == 0


@pytest.mark.parametrize(("name", "remedy"), [("weight_decay", r"options\['weight_decay'\]"), ("lr", "learning_rate")])
def test_a_number_that_is_set_as_an_attribute_is_told_its_name(name: str, remedy: str, backend: str) -> None:
    optimizer = make(backend, "name: adam").optimizers["net"]
    with pytest.raises(AttributeError, match=f"write optimizer.{remedy} = "):
        setattr(optimizer, name, 0.1)


def test_what_was_set_is_no_state_and_load_tells_of_it(backend: str, tmp_path: Path) -> None:
    """As it is for a learning rate that was set."""
    first, second = (make(backend, "name: rmsprop, weight_decay: 0.1", GROUPS) for _ in range(2))
    first.optimizers["net"].options["weight_decay"] = 0.25
    first.optimizers["net"].options["groups.1.lr_scale"] = 2
    first({"x": X})
    first.save(tmp_path / "kept")
    with pytest.warns(UserWarning, match="load restores no hyper-parameters") as told:
        second.load(tmp_path / "kept")
    message = str(told[0].message)
    assert "`weight_decay` of optimizer 'net' was 0.25 (set by hand), and is 0.1" in message
    assert "`groups.1.lr_scale` of optimizer 'net' was 2.0 (set by hand), and is what the spec says" in message
    third = make(backend, "name: rmsprop, weight_decay: 0.1", GROUPS)
    third.restore(first.state())
    for name in list(first.optimizers["net"].options.by_hand):
        first.optimizers["net"].options[name] = None
    for step in (first, second, third):
        step({"x": X})
    assert all(np.array_equal(weights(first)[name], each) for name, each in weights(second).items())
    assert all(np.array_equal(weights(first)[name], each) for name, each in weights(third).items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        third.save(tmp_path / "plain")
        second.load(tmp_path / "plain")


def test_numbers_are_set_in_a_debug_build(backend: str) -> None:
    assert_set_alike(backend, debug=True)


@pytest.mark.needs("tensorflow")
def test_numbers_are_set_under_xla() -> None:
    assert_set_alike("tensorflow", jit_compile=True)


def assert_set_alike(backend: str, **options: bool) -> None:
    """Compare numbers that are set in a plain build with those of another."""
    text = SPEC.replace("OPTIMIZER", "name: adam, weight_decay: 0.1").replace("GROUPS", f"    groups: {GROUPS}\n")
    plan = compile_step(load(text, ["rng=portable"]), backend)
    plain, other = (build(plan, device="cpu", dtype="float64", **each) for each in ({}, options))
    for number in range(4):
        for step in (plain, other):
            step.optimizers["net"].options["betas"] = (0.5, 0.75) if number == 1 else None
            step.optimizers["net"].options["groups.1.lr_scale"] = 3 if number == 2 else None
            step({"x": X})
    assert all(np.allclose(weights(plain)[name], each, atol=1e-12) for name, each in weights(other).items())


CLASSES = {"torch": "torch.optim:SGD", "tensorflow": "keras.optimizers:SGD"}


def make_of_class(backend: str) -> Step:
    """Return a step with an optimizer of the framework's."""
    text = SPEC.replace("OPTIMIZER", f'class: "{CLASSES[backend]}", lr: 0.1, momentum: 0.5').replace("GROUPS", "")
    return build(compile_step(load(text), backend), device="cpu", dtype="float64", allow=("torch", "keras"))


@pytest.mark.needs("torch")
def test_options_of_a_class_are_set_in_its_groups() -> None:
    import torch

    def change(optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.param_groups[0]["momentum"] = 0.25 if number == 2 else 0.5

    step = make_of_class("torch")
    made = lambda named: torch.optim.SGD(list(named.values()), lr=0.1, momentum=0.5)  # noqa: E731
    expected = train_by_hand(dict(weights(step)), made, 4, change)
    for number in range(4):
        step.optimizers["net"].options["momentum"] = 0.25 if number == 2 else None
        step({"x": X})
    assert all(np.abs(weights(step)[name] - value).max() < 1e-12 for name, value in expected.items())
    with pytest.raises(SpecError, match=r"GS270.*SGD counts its updates by itself"):
        step.optimizers["net"].iterations = 3


@pytest.mark.needs("tensorflow")
def test_one_of_keras_takes_a_count_and_no_option() -> None:
    step = make_of_class("tensorflow")
    optimizer = step.optimizers["net"]
    with pytest.raises(SpecError, match=r"GS270.*`momentum` of optimizer 'net': Keras takes it when") as raised:
        optimizer.options["momentum"] = 0.25
    assert "build anew" in raised.value.diagnostics[0].help
    optimizer.iterations = 5
    step({"x": X})
    assert (optimizer.iterations, int(optimizer.native.optimizer.iterations)) == (6, 6)
