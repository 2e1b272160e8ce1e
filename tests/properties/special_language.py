"""Specs for parts of the language that came late: batches of iterations, phases, learned rates, and what must wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHAPE = {"shape": ["batch", 3]}


def _model(*layers: Any) -> dict[str, Any]:
    return {"layers": [*layers], "optimizer": {"name": "sgd", "lr": 0.3}}


def _document(name: str, models: dict, ops: dict, **inputs: dict) -> dict[str, Any]:
    inputs = {"x": SHAPE, "y": SHAPE, **inputs}
    return {"graphspec": 1, "name": name, "rng": "portable", "inputs": inputs, "models": models, "ops": ops}


def batches() -> dict[str, Any]:
    """Return iterations with a batch for each, op by op."""
    ops: dict[str, dict[str, Any]] = {}
    for number, given in ((1, "batch_1.x"), (2, "batch_2.x"), (3, "x")):
        after = {"after": [f"part.{number - 1}.step"]} if number > 1 else {}
        own = {"mode": "train", **after, "within": [{"repeat": "part", "number": number, "count": 3}]}
        ops[f"part.{number}.out"] = {"forward": "turned", "inputs": given, **own}
        ops[f"part.{number}.seen"] = {"loss": "mse", "inputs": [f"part.{number}.out", 0.1], **own}
        ops[f"part.{number}.step"] = {"update": ["turned"], "loss": f"part.{number}.seen", **own}
    ops["part.seen"] = {"call": "stack", "inputs": [f"part.{number}.seen" for number in (1, 2, 3)], "mode": "train"}
    earlier = {f"batch_{number}.x": {**SHAPE, "of": "x", "batch": number} for number in (1, 2)}
    models = {"turned": _model({"linear": 3}, "tanh")}
    return {**_document("batches", models, ops, **earlier), "outputs": ["part.seen"]}


def phased() -> dict[str, Any]:
    """Return three ops one after another, which are written as phases."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "first": {"update": ["a"], "loss": "loss"},
        "again": {"forward": "a", "inputs": "y", "after": ["first"]},
        "other": {"loss": "mse", "inputs": ["again", "x"]},
        "second": {"update": ["a"], "loss": "other", "after": ["first"]},
        "seen": {"forward": "a", "inputs": "x", "after": ["first", "second"]},
    }
    return {**_document("phased", {"a": _model({"linear": 3})}, ops), "outputs": ["seen"]}


def learned_rate() -> dict[str, Any]:
    """Return an inner step whose rate is learned, and a rate of a group that falls."""
    falling = {"schedule": "linear", "from": 0.4, "to": 0.1, "over": 2}
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "slopes": {"gradient": "fit", "wrt": "a"},
        "fast": {"adapt": "a", "gradients": "slopes", "lr": "rate", "groups": [{"match": "bias", "lr": falling}]},
        "again": {"forward": "fast", "inputs": "y"},
        "miss": {"loss": "mse", "inputs": ["again", "x"]},
        "step": {"update": ["a", "rate"], "loss": "miss"},
    }
    rate = {"parameter": {"shape": [], "init": 0.2}, "optimizer": {"name": "sgd", "lr": 0.5}}
    return _document("learned-rate", {"a": _model({"linear": 3}, "tanh", {"linear": 3}), "rate": rate}, ops)


def normalized() -> dict[str, Any]:
    """Return a weight that is divided by its norm, an average that copies what is kept of it, and a random rounding."""
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", "y"]},
        "step": {"update": ["a"], "loss": "loss"},
        "slow": {"ema": "a", "decay": 0.5, "buffers": "copy"},
        "narrow": {"ema": "a", "decay": 0.7, "buffers": "copy", "dtype": "bfloat16", "rounding": "stochastic"},
    }
    return _document("normalized", {"a": _model({"spectral_norm": [{"linear": 4}]}, "tanh", {"linear": 3})}, ops)


def ordered() -> dict[str, Any]:
    """Return the least elements, and a sequence whose blank is its last class."""
    args = {"k": 2, "largest": False}
    ops = {
        "out": {"forward": "a", "inputs": "x"},
        "least": {"call": "topk", "inputs": "out", "args": args, "outputs": ["low", "at"]},
        "gap": {"loss": "mse", "inputs": ["low", 0.5]},
        "frames": {"call": "stack", "inputs": ["out", "y"], "args": {"axis": 1}},
        "word": {"call": "argmax", "inputs": "lines"},
        "lines": {"call": "stack", "inputs": ["apart"], "args": {"axis": 2}},
        "apart": {"call": "slice", "inputs": "x", "args": {"stop": 2}},
        "full": {"random": "randint", "shape": ["batch"], "args": {"low": 2, "high": 3}},
        "one": {"random": "randint", "shape": ["batch"], "args": {"low": 1, "high": 2}},
        "told": {"loss": "ctc", "inputs": ["frames", "word", "full", "one"], "args": {"blank": 2}},
        "loss": {"call": "add", "inputs": ["gap", "told"]},
        "step": {"update": ["a"], "loss": "loss"},
    }
    return _document("ordered", {"a": _model({"linear": 3})}, ops)


LANGUAGE: Mapping[str, dict[str, Any]] = {
    "batches": batches(),
    "phased": phased(),
    "learned-rate": learned_rate(),
    "normalized": normalized(),
    "ordered": ordered(),
}

CROSSED: dict[str, dict[str, Any]] = {
    "made": {"forward": "g", "inputs": "x"},
    "judged": {"forward": "d", "inputs": "made"},
    "right": {"loss": "mse", "inputs": ["judged", "y"]},
    "wrong": {"loss": "huber", "inputs": ["judged", 0.5]},
    "step_d": {"update": ["d"], "loss": "right"},
    "step_g": {"update": ["g"], "loss": "wrong"},
}
"""The update of `d`, which is listed first, waits for the gradient of `g`, which runs through `d`."""
INNER: dict[str, dict[str, Any]] = {
    "made": {"forward": "g", "inputs": "x"},
    "judged": {"forward": "d", "inputs": "made"},
    "fit": {"loss": "mse", "inputs": ["judged", "y"]},
    "fast": {"adapt": "d", "loss": "fit", "lr": 0.5},
    "again": {"forward": "fast", "inputs": "y"},
    "miss": {"loss": "mse", "inputs": ["again", "x"]},
    "step_d": {"update": ["d"], "loss": "miss"},
    "step_g": {"update": ["g"], "loss": "miss"},
}
"""The same, of which the gradient of `g` runs back through the gradient that `fast` is made of."""
PAIR = {"g": _model({"linear": 3}, "tanh"), "d": _model({"linear": 3}, "tanh", {"linear": 3})}
KEPT = ("made", "judged", "wrong", "step_g")
WAITING: Mapping[str, dict[str, Any]] = {
    "repeat": _document("waiting", PAIR, {"part": {"repeat": 2, "ops": CROSSED}}),
    "batches": _document("waiting", PAIR, {"part": {"repeat": 2, "batch": "next", "ops": CROSSED}}),
    "choose": _document(
        "waiting",
        PAIR,
        {"part": {"choose": [{"p": 0.5, "ops": CROSSED}, {"p": 0.5, "ops": {key: CROSSED[key] for key in KEPT}}]}},
    ),
    "adapt": _document("waiting", PAIR, INNER),
    "adapt in repeat": _document("waiting", PAIR, {"part": {"repeat": 2, "ops": INNER}}),
}
"""Updates that wait inside of a part, or behind a derived model."""
