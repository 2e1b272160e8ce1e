"""Rules are those of torch.optim, of Keras and of papers: the same numbers for twenty steps, with schedules too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from graphspec import SpecError
from tests.features.steps import build_step, set_weights, weights

SHAPES: Mapping[str, tuple[int, ...]] = {"tall": (5, 3), "wide": (2, 4), "vector": (4,), "kernel": (3, 2, 2), "one": ()}
MATRICES = ("tall", "wide")
STEPS = 20


def gradient(name: str, step: int) -> np.ndarray:
    """Return the gradient of a parameter in a step, some elements of which are 0."""
    random = np.random.default_rng([step, *map(ord, name)])
    return np.asarray(random.normal(size=SHAPES[name]) * (random.uniform(size=SHAPES[name]) < 0.8))


def start(name: str) -> np.ndarray:
    return np.asarray(np.random.default_rng(len(name)).normal(size=SHAPES[name]))


def train(optimizer: str, backend: str, names: Sequence[str], dtype: str = "float64", compat: str = "") -> Any:
    """Return the step after twenty updates; the loss is the sum of weights times what is given as their gradients."""
    lines = ["graphspec: 1", "name: rules", *([f"compat: {compat}"] if compat else []), "inputs:"]
    lines += [f"  g_{name}: {{shape: {list(SHAPES[name])}}}" for name in names]
    lines += ["models:", *(f"  {name}: {{parameter: {{shape: {list(SHAPES[name])}}}}}" for name in names), "ops:"]
    lines += [f"  w_{name}: {{forward: {name}}}" for name in names]
    lines += [f"  p_{name}: {{call: mul, inputs: [w_{name}, g_{name}]}}" for name in names]
    lines += [f"  s_{name}: {{call: sum, inputs: p_{name}}}" for name in names]
    lines += [f"  cost: {{call: add, inputs: [{', '.join(f's_{name}' for name in names)}]}}"]
    lines += [f"  step: {{update: [{', '.join(names)}], loss: cost, optimizer: {optimizer}}}"]
    step = build_step("\n".join(lines) + "\n", backend, dtype=dtype)
    set_weights(step, {f"{name}.value": start(name) for name in names})
    for number in range(STEPS):
        step({f"g_{name}": gradient(name, number).astype(dtype) for name in names})
    return step


def apart(step: Any, expected: Mapping[str, np.ndarray]) -> float:
    """Return how far the weights are from what is expected at most; they have moved far."""
    found = {name.removesuffix(".value"): each for name, each in weights(step).items()}
    assert all(np.abs(found[name] - start(name)).max() > 1e-3 for name in expected)
    return max(float(np.abs(found[name] - each).max()) for name, each in expected.items())


TORCH: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "adafactor": ("{name: adafactor}", "Adafactor", {}),
    "adafactor-options": (
        "{name: adafactor, lr: 0.3, beta2_decay: -0.6, eps1: 1e-3, eps2: 0.2, clip_threshold: 1.2, weight_decay: 0.1}",
        "Adafactor",
        {"lr": 0.3, "beta2_decay": -0.6, "eps": (1e-3, 0.2), "d": 1.2, "weight_decay": 0.1},
    ),
    "rprop": ("rprop", "Rprop", {}),
    "rprop-options": (
        "{name: rprop, lr: 0.1, eta_minus: 0.4, eta_plus: 1.5, step_min: 0.05, step_max: 0.2}",
        "Rprop",
        {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (0.05, 0.2)},
    ),
    "muon": ("muon", "Muon", {}),
    "muon-options": (
        "{name: muon, lr: 0.1, momentum: 0.8, nesterov: false, ns_steps: 3, adjust_lr: match_rms_adamw}",
        "Muon",
        {"lr": 0.1, "momentum": 0.8, "nesterov": False, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"},
    ),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("case", TORCH)
def test_they_are_those_of_torch_optim(case: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    written, its, options = TORCH[case]
    names = MATRICES if its == "Muon" else tuple(SHAPES)
    step = train(written, backend, names)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # PyTorch's Muon rounds, ours does not
    held = {name: torch.nn.Parameter(torch.tensor(start(name))) for name in names}
    made = getattr(torch.optim, its)(list(held.values()), **options)
    for number in range(STEPS):
        for name, each in held.items():
            each.grad = torch.tensor(gradient(name, number))
        made.step()
    assert apart(step, {name: each.detach().numpy() for name, each in held.items()}) < 1e-10


KERAS: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "lamb": (
        "{name: lamb, lr: 0.0625, betas: [0.875, 0.984375], eps: 0.0009765625}",
        "Lamb",
        {"learning_rate": 0.0625, "beta_1": 0.875, "beta_2": 0.984375, "epsilon": 2.0**-10},
    ),
    "ftrl": (
        "{name: ftrl, lr: 0.0625, initial_accumulator_value: 0.25, l1: 0.125, l2: 0.5, l2_shrinkage: 0.25, beta: 0.75}",
        "Ftrl",
        {"learning_rate": 0.0625, "initial_accumulator_value": 0.25, "beta": 0.75}
        | {
            f"{key}_regularization_strength": value
            for key, value in {"l1": 0.125, "l2": 0.5, "l2_shrinkage": 0.25}.items()
        },
    ),
    "adafactor": ("{name: adafactor, lr: 0.125}", "Adafactor", {"learning_rate": 0.125}),
}


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("case", KERAS)
def test_they_are_those_of_keras(case: str, backend: str) -> None:
    """Numbers are powers of 2, which Keras takes through float32 exactly."""
    import keras

    written, its, options = KERAS[case]
    names = tuple(name for name in SHAPES if case != "adafactor" or name != "one")
    step = train(written, backend, names, compat="tf_keras")
    held = [keras.Variable(start(name), dtype="float64") for name in names]
    made = getattr(keras.optimizers, its)(**options)
    made.build(held)
    for number in range(STEPS):
        made.apply([keras.ops.convert_to_tensor(gradient(name, number)) for name in names], held)
    found = {name: each.value.numpy() for name, each in zip(names, held, strict=True)}
    assert apart(step, found) < 1e-10


Rule = Callable[[np.ndarray, np.ndarray, dict[str, Any], float], np.ndarray]


def lars(w: np.ndarray, g: np.ndarray, held: dict[str, Any], lr: float) -> np.ndarray:
    """You et al. 2017, algorithm 1."""
    weights, length = np.linalg.norm(w), np.linalg.norm(g)
    local = 0.02 * weights / (length + 0.1 * weights) if weights and length else 1.0
    held["v"] = 0.9 * held.get("v", 0.0) + local * (g + 0.1 * w)
    return w - lr * held["v"]


def lamb(w: np.ndarray, g: np.ndarray, held: dict[str, Any], lr: float) -> np.ndarray:
    """You et al. 2020, algorithm 2, with a weight decay, which Keras applies elsewhere."""
    t = held["t"] = held.get("t", 0) + 1
    held["m"] = 0.9 * held.get("m", 0.0) + 0.1 * g
    held["v"] = 0.999 * held.get("v", 0.0) + 0.001 * g * g
    step = held["m"] / (1 - 0.9**t) / (np.sqrt(held["v"] / (1 - 0.999**t)) + 1e-6) + 0.1 * w
    return w - lr * np.linalg.norm(w) / np.linalg.norm(step) * step


def schedule_free(w: np.ndarray, direction: np.ndarray, held: dict[str, Any], lr: float, share: float) -> np.ndarray:
    """Defazio et al. 2024, eqs. 3 to 5, with the weights of its authors' package."""
    x, z = held.get("x", w), held.get("z", w)
    held["greatest"] = max(held.get("greatest", 0.0), lr)
    held["total"] = held.get("total", 0.0) + held["greatest"] ** 2
    part = held["greatest"] ** 2 / held["total"]
    held["z"] = z - lr * (direction + 0.1 * w)
    held["x"] = (1 - part) * x + part * held["z"]
    return (1 - share) * held["z"] + share * held["x"]


def schedule_free_sgd(w: np.ndarray, g: np.ndarray, held: dict[str, Any], lr: float) -> np.ndarray:
    return schedule_free(w, g, held, lr, 0.8)


def schedule_free_adamw(w: np.ndarray, g: np.ndarray, held: dict[str, Any], lr: float) -> np.ndarray:
    t = held["t"] = held.get("t", 0) + 1
    held["v"] = 0.99 * held.get("v", 0.0) + 0.01 * g * g
    return schedule_free(w, g / (np.sqrt(held["v"] / (1 - 0.99**t)) + 1e-8), held, lr, 0.7)


PAPERS: Mapping[str, tuple[str, Rule]] = {
    "lars": ("name: lars, momentum: 0.9, trust_coefficient: 0.02, weight_decay: 0.1", lars),
    "lamb": ("name: lamb, weight_decay: 0.1", lamb),
    "schedule_free_sgd": ("name: schedule_free_sgd, momentum: 0.8, weight_decay: 0.1", schedule_free_sgd),
    "schedule_free_adamw": ("name: schedule_free_adamw, betas: [0.7, 0.99], weight_decay: 0.1", schedule_free_adamw),
}
WARMUP = "{schedule: warmup, from: 0.0125, to: 0.1, over: 7}"


def train_by_hand(rule: Rule, names: Sequence[str]) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
    """Return the weights, and what the rule keeps for them, after twenty steps with a warm-up of eight."""
    found, kept = {name: start(name) for name in names}, {name: dict[str, Any]() for name in names}
    for number in range(STEPS):
        lr = 0.1 * min(1.0, (number + 1) / 8)
        found = {name: rule(w, gradient(name, number), kept[name], lr) for name, w in found.items()}
    return found, kept


@pytest.mark.parametrize("case", PAPERS)
def test_they_are_those_of_papers_with_a_warm_up(case: str, backend: str) -> None:
    options, rule = PAPERS[case]
    names = tuple(name for name in SHAPES if name != "one")
    step = train(f"{{{options}, lr: {WARMUP}}}", backend, names)
    assert apart(step, train_by_hand(rule, names)[0]) < 1e-10


@pytest.mark.parametrize("rule", ["lamb", "lars", "adafactor", "ftrl", "rprop", "schedule_free_sgd", "muon"])
def test_float32_is_near_float64(rule: str, backend: str) -> None:
    names = MATRICES if rule == "muon" else ("tall", "vector")
    written = f"{{name: {rule}, lr: 0.05}}"
    single, exact = (weights(train(written, backend, names, dtype)) for dtype in ("float32", "float64"))
    assert {each.dtype.name for each in single.values()} == {"float32"}
    assert max(float(np.abs(single[name] - exact[name]).max()) for name in exact) < 1e-4


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{name: schedule_free_sgd, momentum: {schedule: linear, from: 0.9, over: 9}}", "GS113.*takes no schedule"),
        ("{name: schedule_free_adamw, betas: [0.9, {schedule: linear, from: 0.9, over: 9}]}", "GS113.*`betas`"),
        ("{name: ftrl, lr: 0}", "GS113.*greater than 0"),
        ("{name: ftrl, lr: {schedule: cosine, from: 0.1, over: 9}}", "GS113.*greater than 0"),
        ("{name: ftrl, initial_accumulator_value: 0}", "GS113.*greater than 0"),
        ("{name: lars, momentum: 0, nesterov: true}", "GS113.*`nesterov` needs a momentum"),
        ("{name: rprop, weight_decay: 0.1}", "GS112.*no option 'weight_decay'"),
    ],
)
def test_what_a_rule_cannot_do_is_refused(written: str, message: str, backend: str) -> None:
    with pytest.raises(SpecError, match=rf"(?s){message}"):
        train(written, backend, ("vector",))
