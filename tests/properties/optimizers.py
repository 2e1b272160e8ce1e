"""Random optimizers, with options and schedules that keep a few steps well-conditioned.

A gradient that is zero but for rounding, such as that of a bias whose effect a softmax takes away, would be blown up by
a rule that divides by its root mean square: `eps` is large enough that it is not.
"""

from __future__ import annotations

from random import Random

RULES = ("sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion")
RATES = {"sgd": 0.1, "adadelta": 1.0, "lion": 0.01}


def random_optimizer(random: Random) -> dict[str, object]:
    """Return an optimizer: mostly SGD with something, or any of the other rules."""
    name = "sgd" if random.random() < 0.45 else random.choice(RULES)
    found: dict[str, object] = {"name": name, "lr": random_rate(random, RATES.get(name, 0.02))}
    if name == "sgd":
        found |= _random_momentum(random)
    if random.random() < 0.3:
        found["weight_decay"] = 0.1
    if name in ("adam", "adamw", "rmsprop", "adagrad", "adamax", "nadam"):
        found["eps"] = 1e-4
    if name == "rmsprop" and random.random() < 0.5:
        found |= random.choice([{"momentum": 0.5}, {"alpha": 0.9}])
    if name in ("adam", "adamw", "adamax", "nadam", "lion") and random.random() < 0.4:
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
