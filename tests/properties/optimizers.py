"""Random optimizers, with options and schedules that keep a few steps well-conditioned.

A gradient that is zero up to rounding, such as that of a bias whose effect a softmax takes away, would be blown up by
a rule that divides by its root mean square: `eps` is large enough that it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

RULES = ("adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion", "lamb", "lars", "adafactor", "ftrl")
RULES += ("rprop", "schedule_free_sgd", "schedule_free_adamw", "sgd", "adam")
RATES = {"sgd": 0.1, "adadelta": 1.0, "lion": 0.01, "lars": 1.0, "ftrl": 0.2, "schedule_free_sgd": 0.2}
EPS = ("adam", "adamw", "rmsprop", "adagrad", "adamax", "nadam", "lamb", "schedule_free_adamw")
BETAS = ("adam", "adamw", "adamax", "nadam", "lion", "lamb", "schedule_free_adamw")
UNDECAYED = ("ftrl", "rprop")
OTHERS: Mapping[str, Sequence[Mapping[str, object]]] = {
    "rmsprop": ({"momentum": 0.5}, {"alpha": 0.9}),
    "lars": ({"trust_coefficient": 0.02}, {"momentum": 0.5, "nesterov": True}),
    "adafactor": ({"beta2_decay": -0.5}, {"clip_threshold": 0.5}, {"eps2": 0.5}),
    "ftrl": ({"l1": 0.01}, {"l2": 0.1, "beta": 0.1}, {"l2_shrinkage": 0.1, "lr_power": -0.4}),
    "rprop": ({"eta_plus": 1.5, "step_max": 0.05}, {"eta_minus": 0.3, "step_min": 0.01}),
    "schedule_free_sgd": ({"momentum": 0.5},),
}
"""Options of rules of which one in two specs has some."""


def random_optimizer(random: Random) -> dict[str, object]:
    """Return an optimizer: mostly SGD with something, or any of the other rules."""
    name = "sgd" if random.random() < 0.45 else random.choice(RULES)
    rate = random_rate(random, RATES.get(name, 0.02))
    found: dict[str, object] = {"name": name, "lr": RATES[name] if name == "ftrl" else rate}  # its rate is never 0
    if name == "sgd":
        found |= _random_momentum(random)
    if random.random() < 0.3 and name not in UNDECAYED:
        found["weight_decay"] = 0.1
    if name in EPS:
        found["eps"] = 1e-4
    if name == "adafactor":
        found["eps1"] = 1e-3
    if name in OTHERS and random.random() < 0.5:
        found |= random.choice(OTHERS[name])
    if name in BETAS and random.random() < 0.4:
        found["betas"] = [0.5, 0.9]
    if name in ("sgd", "adam", "adamw", "adagrad") and random.random() < 0.2:
        found["fused"] = False
    return found


def _random_momentum(random: Random) -> dict[str, object]:
    choices: list[dict[str, object]] = [
        {},
        {},
        {"momentum": 0.9},
        {"momentum": 0.5, "nesterov": True},
        {"momentum": 0.9, "dampening": 0.2},
        {"momentum": 0.5, "momentum_form": "lr_inside"},
        {"momentum": 0.5, "momentum_form": "lr_inside", "nesterov": True},
    ]
    return random.choice(choices)


def random_rate(random: Random, rate: float) -> object:
    """Return a learning rate, in a third of the cases a schedule."""
    if random.random() < 0.65:
        return rate
    low = rate / 4
    schedules: list[dict[str, object]] = [
        {"schedule": "constant", "value": rate},
        {"schedule": "linear", "from": rate, "to": low, "over": 2},
        {"schedule": "cosine", "from": rate, "over": 4},
        {"schedule": "polynomial", "from": rate, "to": low, "over": 3, "power": 2.0},
        {"schedule": "exponential", "from": rate, "rate": 0.5, "per": 2},
        {"schedule": "step", "from": rate, "factor": 0.5, "every": 2},
        {"schedule": "warmup", "from": low, "to": rate, "over": 2},
        {"schedule": "piecewise", "at": {"0": rate, "1": low, "2": rate}},
        {
            "schedule": "join",
            "parts": [
                {"schedule": "warmup", "from": low, "to": rate, "over": 1},
                {"schedule": "linear", "from": rate, "over": 4},
            ],
        },
    ]
    found = random.choice(schedules)
    return found | {"clock": "steps"} if random.random() < 0.3 else found
