"""Random specs in which models are called twice, so that calls can be joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAIN = {"forward", "inputs", "train", "after"}
"""The keys of a forward that gets a twin."""


def add_twins(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document in which a plain forward is the sum of two: of its input, and of half of it."""
    models, ops = document["models"], dict[str, Any]()
    for name, op in document["ops"].items():
        if not op.keys() <= PLAIN or not isinstance(op.get("inputs"), str) or not _takes_numbers(models, op):
            ops[name] = op
            continue
        ops[f"{name}_one"] = op
        ops[f"{name}_half"] = {"call": "mul", "inputs": [op["inputs"], 0.5]}
        ops[f"{name}_two"] = {**op, "inputs": f"{name}_half"}
        ops[name] = {"call": "add", "inputs": [f"{name}_one", f"{name}_two"]}
    return {**document, "ops": ops}


def _takes_numbers(models: Mapping[str, Any], op: Mapping[str, Any]) -> bool:
    """Return whether a forward is of built-in layers of which the first is no table."""
    layers = models.get(op["forward"], {}).get("layers")
    return bool(layers) and not (isinstance(layers[0], dict) and "embedding" in layers[0])
