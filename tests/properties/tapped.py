"""Specs with gradients by what inner layers gave, of losses that are made from what the same call gave."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN = [{"linear": 3}, "tanh", {"linear": 3}]
NORMED = [{"linear": 3}, "batch_norm", "tanh", {"linear": 3}]
BARE = ["relu", {"linear": 3}, "tanh", {"linear": 3}]
NESTED = [{"linear": 3}, {"residual": [{"linear": 3}, "tanh"]}, {"linear": 3}]
SLOPE = {"slope": {"gradient": "fit", "wrt": "h"}}
STEP = {"step": {"update": "a", "loss": "fit"}}
BESIDE = {
    "other": {"forward": "b", "inputs": "x"},
    "away": {"loss": "mse", "inputs": ["other", "slope"]},
    "step": {"update": "b", "loss": "away"},
}
PENALTY = {
    "steep": {"loss": "mse", "inputs": ["slope", 1.0]},
    "whole": {"call": "add", "inputs": ["fit", "steep"]},
    "step": {"update": "a", "loss": "whole"},
}


def _call(tap: int | str = 1, **fields: object) -> dict:
    """Return a call with a tap, and a loss of its result."""
    outputs = ["out", {"h": {"tap": tap}}]
    call = {"forward": "a", "inputs": "x", "outputs": outputs, **fields}
    return {"call": call, "fit": {"loss": "mse", "inputs": ["out", "y"]}}


def _document(ops: dict, layers: list, outputs: list[str], **fields: object) -> dict:
    """Return a spec of a model with these layers, and of another."""
    shape = {"shape": ["batch", 3]}
    models = {name: {"layers": layers, "optimizer": {"name": "sgd", "lr": 0.1}} for name in "ab"}
    models = models if any(op.get("forward") == "b" for op in ops.values()) else {"a": models["a"]}
    return {
        "graphspec": 1,
        "name": "tapped",
        "rng": "portable",
        "inputs": {"x": shape, "y": shape},
        "models": models,
    } | {
        "ops": ops,
        "outputs": ["h", *outputs],
        **fields,
    }


def _both() -> dict:
    """Return a loss that also uses the tap itself, and one that uses nothing else."""
    ops = {
        **_call(),
        "size": {"call": "mean", "inputs": "h"},
        "whole": {"call": "add", "inputs": ["fit", "size"]},
        "slope": {"gradient": "whole", "wrt": "h"},
        "flat": {"gradient": "size", "wrt": "h"},
        "step": {"update": "a", "loss": "whole"},
    }
    return _document(ops, PLAIN, ["slope", "flat"])


def _two() -> dict:
    """Return gradients by two taps, of which one is behind the other."""
    ops = {
        "call": {"forward": "a", "inputs": "x", "outputs": ["out", {"h": {"tap": 0}}, {"k": {"tap": 1}}]},
        "inner": {"loss": "mse", "inputs": ["k", "y"]},
        "fit": {"loss": "mse", "inputs": ["out", "y"]},
        "slope": {"gradient": "inner", "wrt": "h"},
        "slopes": {"gradient": "fit", "wrt": ["h", "k"], "outputs": ["by_h", "by_k"]},
        **STEP,
    }
    return _document(ops, PLAIN, ["slope", "by_h", "by_k"])


def _behind() -> dict:
    """Return a gradient by a tap and by what enters the same call."""
    ops = {
        "before": {"forward": "b", "inputs": "x"},
        **_call(inputs="before"),
        "slopes": {"gradient": "fit", "wrt": ["before", "h"], "outputs": ["by_before", "by_h"]},
        "step": {"update": ["a", "b"], "loss": "fit"},
    }
    return _document(ops, PLAIN, ["by_before", "by_h"])


TAPPED: Mapping[str, dict] = {
    "plain": _document({**_call(), **SLOPE, **STEP}, PLAIN, ["slope"]),
    "last": _document({**_call(2), **SLOPE, **STEP}, PLAIN, ["slope"]),
    "nested": _document({**_call("1.0"), **SLOPE, **STEP}, NESTED, ["slope"]),
    "frozen": _document({**_call(), **SLOPE, **BESIDE}, PLAIN, ["slope"]),
    "frozen, before any weights": _document({**_call(0), **SLOPE, **BESIDE}, BARE, ["slope"]),
    "penalty": _document({**_call(), **SLOPE, **PENALTY}, PLAIN, ["slope"]),
    "penalty, statistics": _document({**_call(2), **SLOPE, **PENALTY}, NORMED, ["slope"]),
    "penalty, parts": _document({**_call(), **SLOPE, **PENALTY}, PLAIN, ["slope"], micro_batches=2),
    "snapshot": _document({**_call(snapshot=True), **SLOPE, **STEP}, PLAIN, ["slope"]),
    "both": _both(),
    "two": _two(),
    "behind": _behind(),
}
"""The specs by what is special about them."""
