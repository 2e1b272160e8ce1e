"""The optimizers by the formulas of their papers, and PyTorch's documentation where it differs.

Each rule is a pure function of one parameter: its value, gradient, slots and options in; value and slots out. ``t`` is
the number of the update, from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

ROUNDING = 1e-13


class DegenerateError(Exception):
    """A result hangs on rounding alone, or is not finite: nothing can be compared."""


Slots = Mapping[str, Any]
Options = Mapping[str, Any]
Stepped = tuple[np.ndarray, Slots]
Rule = Callable[[np.ndarray, np.ndarray, Slots, Options, int], Stepped]


def decayed(w: np.ndarray, g: np.ndarray, o: Options) -> np.ndarray:
    """Return the gradient of the loss plus half of weight_decay times the squared weights."""
    return g + o["weight_decay"] * w


def sgd(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Polyak 1964, PyTorch's form: v = m v + (1 - dampening) g, at first g; w -= lr v, Nesterov w -= lr (g + m v).

    ``lr_inside`` is the form of Keras: v = m v - lr g; w += v, Nesterov w += m v - lr g.
    """
    g, m = decayed(w, g, o), o["momentum"]
    if o["momentum_form"] == "lr_inside":
        v = m * s.get("v", 0 * g) - o["lr"] * g
        return w + (m * v - o["lr"] * g if o["nesterov"] else v), {"v": v}
    if not m:
        return w - o["lr"] * g, {}
    v = m * s["v"] + (1 - o["dampening"]) * g if "v" in s else g
    return w - o["lr"] * (g + m * v if o["nesterov"] else v), {"v": v}


def _moments(g: np.ndarray, s: Slots, o: Options) -> tuple[np.ndarray, np.ndarray]:
    b1, b2 = o["betas"]
    return b1 * s.get("m", 0 * g) + (1 - b1) * g, b2 * s.get("v", 0 * g) + (1 - b2) * g * g


def adam(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Kingma and Ba 2015, algorithm 1."""
    m, v = _moments(decayed(w, g, o), s, o)
    b1, b2 = o["betas"]
    return w - o["lr"] * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + o["eps"]), {"m": m, "v": v}


def adamw(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Loshchilov and Hutter 2019: the decay shrinks the weights by themselves."""
    return adam(w * (1 - o["lr"] * o["weight_decay"]), g, s, {**o, "weight_decay": 0.0}, t)


def rmsprop(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Tieleman and Hinton 2012 with PyTorch's options: eps outside the root, momentum over the scaled gradients."""
    g, a = decayed(w, g, o), o["alpha"]
    v = a * s.get("v", 0 * g) + (1 - a) * g * g
    mean = a * s.get("mean", 0 * g) + (1 - a) * g
    scaled = g / (np.sqrt(v - mean * mean if o["centered"] else v) + o["eps"])
    b = o["momentum"] * s.get("b", 0 * g) + scaled
    return w - o["lr"] * (b if o["momentum"] else scaled), {"v": v, "mean": mean, "b": b}


def adagrad(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Duchi et al. 2011 with PyTorch's lr_decay."""
    g = decayed(w, g, o)
    total = s.get("total", 0 * g + o["initial_accumulator_value"]) + g * g
    return w - o["lr"] / (1 + (t - 1) * o["lr_decay"]) * g / (np.sqrt(total) + o["eps"]), {"total": total}


def adadelta(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Zeiler 2012, algorithm 1, times lr."""
    g, rho = decayed(w, g, o), o["rho"]
    v = rho * s.get("v", 0 * g) + (1 - rho) * g * g
    d = np.sqrt(s.get("d", 0 * g) + o["eps"]) / np.sqrt(v + o["eps"]) * g
    return w - o["lr"] * d, {"v": v, "d": rho * s.get("d", 0 * g) + (1 - rho) * d * d}


def adamax(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Kingma and Ba 2015, algorithm 2; PyTorch adds eps to the gradient inside the maximum."""
    g, (b1, b2) = decayed(w, g, o), o["betas"]
    m = b1 * s.get("m", 0 * g) + (1 - b1) * g
    u = np.maximum(b2 * s.get("u", 0 * g), np.abs(g) + o["eps"])
    return w - o["lr"] / (1 - b1**t) * m / u, {"m": m, "u": u}


def nadam(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Dozat 2016 with PyTorch's schedule mu_t = b1 (1 - 0.5 * 0.96^(t momentum_decay)).

    PyTorch keeps the product of all mu in float32, whatever the parameters are.
    """
    g, (b1, b2) = decayed(w, g, o), o["betas"]
    m, v = _moments(g, s, o)
    mu, following = (b1 * (1 - 0.5 * 0.96 ** (n * o["momentum_decay"])) for n in (t, t + 1))
    past = float(np.float32(s.get("past", 1.0)) * np.float32(mu))
    mean = following * m / (1 - past * following) + (1 - mu) * g / (1 - past)
    return w - o["lr"] * mean / (np.sqrt(v / (1 - b2**t)) + o["eps"]), {"m": m, "v": v, "past": past}


def lion(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Chen et al. 2023, algorithm 2."""
    b1, b2 = o["betas"]
    m = s.get("m", 0 * g)
    direction = b1 * m + (1 - b1) * g
    if (np.abs(direction) < ROUNDING).any():
        raise DegenerateError("lion takes the sign of what is zero but for rounding")
    return w - o["lr"] * (np.sign(direction) + o["weight_decay"] * w), {"m": b2 * m + (1 - b2) * g}


RULES: Mapping[str, Rule] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": adamw,
    "rmsprop": rmsprop,
    "adagrad": adagrad,
    "adadelta": adadelta,
    "adamax": adamax,
    "nadam": nadam,
    "lion": lion,
}

DEFAULTS: Mapping[str, Options] = {
    "sgd": {
        "lr": 1e-3,
        "momentum": 0,
        "dampening": 0,
        "nesterov": False,
        "weight_decay": 0,
        "momentum_form": "lr_outside",
    },
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0},
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2},
    "rmsprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False},
    "adagrad": {"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10},
    "adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0},
    "adamax": {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0},
    "nadam": {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "momentum_decay": 4e-3},
    "lion": {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0},
}
"""PyTorch's defaults; lion: its paper's."""


def clip_norm(gradients: Mapping[Any, np.ndarray], norm: float, eps: float = 0.0) -> Mapping[Any, np.ndarray]:
    """Return all gradients times min(1, norm / (||g|| + eps)) (Pascanu et al. 2013)."""
    length = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
    factor = min(1.0, norm / (length + eps)) if length + eps > 0 else 1.0
    return {key: g * factor for key, g in gradients.items()}


def clip_value(gradients: Mapping[Any, np.ndarray], value: float) -> Mapping[Any, np.ndarray]:
    """Return all gradients with every element between -value and value."""
    return {key: np.clip(g, -value, value) for key, g in gradients.items()}
