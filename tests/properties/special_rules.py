"""Specs of optimizers that keep more than a step: an average of the model, or a rule of its own for some parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _document(name: str, model: dict[str, object], more: dict[str, object]) -> dict[str, Any]:
    return {
        "graphspec": 1,
        "name": name,
        "rng": "portable",
        "inputs": {"x": {"shape": ["batch", 3]}, "label": {"shape": ["batch"], "dtype": "int64"}},
        "models": {"net": {"layers": [{"linear": 2}, "tanh", {"linear": 3}], **model}},
        "ops": {
            "out": {"forward": "net", "inputs": "x"},
            "far": {"loss": "mse", "inputs": ["out", "x"]},
            "step": {"update": ["net"], "loss": "far"},
            **more,
        },
        "outputs": ["far", "out"],
    }


_FREE = {"name": "schedule_free_sgd", "lr": 0.3, "momentum": 0.8}
_GROUP = {"match": "bias$", "optimizer": {"name": "adam", "lr": 0.1, "betas": [0.5, 0.9]}}
RULED: Mapping[str, dict[str, Any]] = {
    "schedule-free": _document(
        "schedule-free",
        {"optimizer": _FREE},
        {"average": {"ema": "net", "schedule_free": True, "use": {"eval": "swap"}}},
    ),
    "ruled-group": _document("ruled-group", {"optimizer": {"name": "sgd", "lr": 0.2}, "groups": [_GROUP]}, {}),
}
