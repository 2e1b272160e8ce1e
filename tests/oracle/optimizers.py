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
    """Polyak 1964, PyTorch's form: v = m v + (1 - dampening) g, in the first update g; w -= lr v.

    Nesterov's is w -= lr (g + m v). A parameter that is freed later does not begin anew: one count is for all.
    ``lr_inside`` is the form of Keras: v = m v - lr g; w += v, Nesterov w += m v - lr g.
    """
    g, m = decayed(w, g, o), o["momentum"]
    if o["momentum_form"] == "lr_inside":
        v = m * s.get("v", 0 * g) - o["lr"] * g
        return w + (m * v - o["lr"] * g if o["nesterov"] else v), {"v": v}
    if not m:
        return w - o["lr"] * g, {}
    v = m * s.get("v", 0 * g) + (1 if t == 1 else 1 - o["dampening"]) * g
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
        raise DegenerateError("lion takes the sign of a number that is zero up to rounding")
    return w - o["lr"] * (np.sign(direction) + o["weight_decay"] * w), {"m": b2 * m + (1 - b2) * g}


TINY = 1e-9
"""A length below which a direction is rounding."""


def _ratio(weights: np.ndarray, step: np.ndarray, ratio: Callable[[float, float], float]) -> float:
    """Return a ratio of the lengths of weights and of a step; 1 for weights of length 0."""
    w, g = (float(np.sqrt((each * each).sum())) for each in (weights, step))
    if 0 < w < TINY or g < TINY:
        raise DegenerateError("division by a norm that may be pure rounding")
    return ratio(w, g) if w else 1.0


def lamb(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """You et al. 2020, algorithm 2, without a limit of the norm of the weights."""
    m, v = _moments(g, s, o)
    b1, b2 = o["betas"]
    step = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + o["eps"]) + o["weight_decay"] * w
    return w - o["lr"] * _ratio(w, step, lambda weights, length: weights / length) * step, {"m": m, "v": v}


def lars(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """You et al. 2017, algorithm 1; the rate outside the momentum, as in PyTorch's SGD."""
    decay, m = o["weight_decay"], o["momentum"]
    local = _ratio(w, g, lambda weights, length: o["trust_coefficient"] * weights / (length + decay * weights))
    step = local * decayed(w, g, o)
    v = m * s.get("v", 0 * g) + step
    return w - o["lr"] * (step + m * v if o["nesterov"] else v), {"v": v}


def adafactor(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Shazeer and Stern 2018, algorithms 4 and 5, with PyTorch's eps1 and its rate: at most lr, at most 1 / sqrt(t)."""
    eps1 = np.finfo(np.float64).eps if o["eps1"] is None else o["eps1"]
    rest, squares = float(t) ** o["beta2_decay"], g * g
    rate = max(o["eps2"], float(np.sqrt(np.mean(w * w)))) * min(o["lr"], t**-0.5)
    if g.ndim > 1:
        rows = (1 - rest) * s.get("rows", 0.0) + rest * squares.mean(axis=-1)
        columns = (1 - rest) * s.get("columns", 0.0) + rest * squares.mean(axis=-2)
        whole = np.maximum(rows.mean(axis=-1), eps1)
        v = np.einsum("...i,...j->...ij", rows, columns) / whole[..., None, None]
        slots = {"rows": rows, "columns": columns}
    else:
        v = (1 - rest) * s.get("v", 0 * g) + rest * squares
        slots = {"v": v}
    step = g / np.maximum(np.sqrt(v), eps1)
    step = step / max(1.0, float(np.sqrt(np.mean(step * step))) / o["clip_threshold"])
    return w - o["lr"] * o["weight_decay"] * w - rate * step, slots


def ftrl(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """McMahan et al. 2013, algorithm 1, with Keras's options: 2 l2 for lambda_2, the shrinkage in the sum alone."""
    n, p = s.get("n", 0 * g + o["initial_accumulator_value"]), -o["lr_power"]
    sigma = ((n + g * g) ** p - n**p) / o["lr"]
    z = s.get("z", 0 * g) + g + 2 * o["l2_shrinkage"] * w - sigma * w
    divisor = (o["beta"] + (n + g * g) ** p) / o["lr"] + 2 * o["l2"]
    return np.where(np.abs(z) <= o["l1"], 0.0, (np.sign(z) * o["l1"] - z) / divisor), {"n": n + g * g, "z": z}


def rprop(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Riedmiller and Braun 1993; where a sign changes nothing moves, and the next sign counts as new.

    A size is kept in units of lr, so that lr scales the steps of all weights whenever it changes.
    """
    if not np.isfinite(g).all() or (np.abs(g) < ROUNDING).any():
        raise DegenerateError("rprop takes the sign of NaN, or of a number that is zero up to rounding")
    turn = np.sign(s.get("before", 0 * g) * g)
    size = s.get("size", 0 * g + 1.0) * np.choose(turn.astype(int) + 1, [o["eta_minus"], 1.0, o["eta_plus"]])
    if o["lr"]:
        size = np.minimum(np.maximum(o["lr"] * size, o["step_min"]), o["step_max"]) / o["lr"]
    kept = np.where(turn < 0, 0.0, g)
    return w - o["lr"] * size * np.sign(kept), {"before": kept, "size": size}


def muon(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Jordan et al. 2024, with PyTorch's mean of gradients; the quintic iteration acts on the singular values."""
    m, (rows, columns) = o["momentum"], w.shape
    mean = m * s.get("m", 0 * g) + (1 - m) * g
    if not np.isfinite(mean).all():
        raise DegenerateError("muon decomposes NaN")
    u, values, v = np.linalg.svd((1 - m) * g + m * mean if o["nesterov"] else mean, full_matrices=False)
    if 0 < np.linalg.norm(values) < 1e-6:
        raise DegenerateError("muon divides a matrix that may be pure rounding by its own norm")
    values = values / max(float(np.linalg.norm(values)), o["eps"])
    for _ in range(o["ns_steps"]):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    scale = max(1, rows / columns) ** 0.5 if o["adjust_lr"] == "original" else 0.2 * max(rows, columns) ** 0.5
    return w - o["lr"] * o["weight_decay"] * w - o["lr"] * scale * (u * values) @ v, {"m": mean}


def schedule_free_sgd(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Defazio et al. 2024, eqs. 3 to 5: z takes the step, x averages z, and the weights lie between.

    z counts in x by the square of the greatest rate so far. Whatever else writes the weights moves z and x along.
    """
    lead, share = s.get("lead", 0 * w), o["momentum"]
    x, z = w - (1 - share) * lead, w + share * lead
    greatest = max(o["lr"], s.get("greatest", 0.0))
    total = s.get("total", 0.0) + greatest**2
    part = greatest**2 / total if total else 0.0
    z = z - o["lr"] * decayed(w, g, o)
    x = (1 - part) * x + part * z
    slots = {"lead": z - x, "gap": (1 - share) * (z - x), "greatest": greatest, "total": total}
    return (1 - share) * z + share * x, slots


def schedule_free_adamw(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Defazio et al. 2024, algorithm 1: Adam's division without its mean, the decay at the weights."""
    b1, b2 = o["betas"]
    v = b2 * s.get("v", 0 * g) + (1 - b2) * g * g
    step = g / (np.sqrt(v / (1 - b2**t)) + o["eps"])
    w, slots = schedule_free_sgd(w, step, s, {**o, "momentum": b1}, t)
    return w, {**slots, "v": v}


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
    "lamb": lamb,
    "lars": lars,
    "adafactor": adafactor,
    "ftrl": ftrl,
    "rprop": rprop,
    "muon": muon,
    "schedule_free_sgd": schedule_free_sgd,
    "schedule_free_adamw": schedule_free_adamw,
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
    "lamb": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0},
    "lars": {"lr": 1.0, "momentum": 0.9, "weight_decay": 0, "nesterov": False, "trust_coefficient": 1e-3},
    "adafactor": {
        "lr": 1e-2,
        "beta2_decay": -0.8,
        "eps1": None,
        "eps2": 1e-3,
        "clip_threshold": 1.0,
        "weight_decay": 0,
    },
    "ftrl": {
        "lr": 1e-3,
        "lr_power": -0.5,
        "initial_accumulator_value": 0.1,
        "l1": 0,
        "l2": 0,
        "l2_shrinkage": 0,
        "beta": 0,
        "weight_decay": 0,
    },
    "rprop": {"lr": 1e-2, "eta_minus": 0.5, "eta_plus": 1.2, "step_min": 1e-6, "step_max": 50, "weight_decay": 0},
    "muon": {
        "lr": 1e-3,
        "momentum": 0.95,
        "nesterov": True,
        "weight_decay": 0.1,
        "ns_steps": 5,
        "eps": 1e-7,
        "adjust_lr": "original",
    },
    "schedule_free_sgd": {"lr": 1.0, "momentum": 0.9, "weight_decay": 0},
    "schedule_free_adamw": {"lr": 2.5e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0},
}
"""PyTorch's defaults, and otherwise those of papers and their authors' code; a rule without a weight decay has 0."""


def step_rows(w: np.ndarray, g: np.ndarray, s: Slots, o: Options, t: int) -> Stepped:
    """Return what a rule makes of those rows alone that have a gradient, as `torch.optim.SparseAdam`; others stay."""
    rule = RULES[o["rule"]]
    rows = np.flatnonzero(g.any(axis=tuple(range(1, g.ndim))))
    slots = {key: value.copy() for key, value in (s or rule(w, 0 * g, {}, o, 1)[1]).items()}
    stepped = w.copy()
    stepped[rows], new = rule(w[rows], g[rows], {key: value[rows] for key, value in slots.items()}, o, t)
    for key, value in new.items():
        slots[key][rows] = value
    return stepped, slots


def clip_norm(gradients: Mapping[Any, np.ndarray], norm: float, eps: float = 0.0) -> Mapping[Any, np.ndarray]:
    """Return all gradients times min(1, norm / (||g|| + eps)) (Pascanu et al. 2013)."""
    length = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
    factor = min(1.0, norm / (length + eps)) if length + eps > 0 else 1.0
    return {key: g * factor for key, g in gradients.items()}


def clip_value(gradients: Mapping[Any, np.ndarray], value: float) -> Mapping[Any, np.ndarray]:
    """Return all gradients with every element between -value and value."""
    return {key: np.clip(g, -value, value) for key, g in gradients.items()}
