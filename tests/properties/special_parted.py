"""Specs with parts that are repeated or chosen, written out; :func:`tests.properties.parted.hold` folds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHAPE = {"shape": ["batch", 3]}
MODELS = {
    "turned": {"layers": [{"linear": 3}, "tanh"], "optimizer": {"name": "sgd", "lr": 0.3}},
    "slow": {"like": "turned"},
}


def _document(name: str, ops: dict[str, dict[str, Any]]) -> dict[str, Any]:
    inputs = {"x": SHAPE, "y": SHAPE}
    return {"graphspec": 1, "name": name, "rng": "portable", "inputs": inputs, "models": MODELS, "ops": ops}


def _iterations(*, split: bool = False, start: int | None = None) -> dict[str, dict[str, Any]]:
    ops: dict[str, dict[str, Any]] = {}
    before: list[str] = []
    if split:
        outputs = ["part.1.x", "part.2.x"]
        ops["part.rows.x"] = {"call": "split_rows", "inputs": "x", "args": {"count": 2}, "outputs": outputs}
    for number in (1, 2):
        later = {"start": start} if start is not None and number > 1 else {}
        within = {"within": [{"repeat": "part", "number": number, "count": 2, **later}]}
        after = {"after": before} if before else {}
        own = {**after, **within}
        ops[f"part.{number}.out"] = {"forward": "turned", "inputs": f"part.{number}.x" if split else "x", **own}
        ops[f"part.{number}.seen"] = {"loss": "mse", "inputs": [f"part.{number}.out", 0.3], **own}
        ops[f"part.{number}.step"] = {"update": ["turned"], "loss": f"part.{number}.seen", **own}
        ops[f"part.{number}.follow"] = {"ema": "turned", "into": "slow", "decay": 0.5, **own}
        before = [f"part.{number}.step", f"part.{number}.follow"]
    ops["part.seen"] = {"call": "stack", "inputs": ["part.1.seen", "part.2.seen"]}
    return ops


def alternatives() -> dict[str, Any]:
    """Return two alternatives, one with an update."""
    ops: dict[str, dict[str, Any]] = {}
    for number, (low, high), call in ((1, (0.0, 0.5), "tanh"), (2, (0.5, 1.0), "neg")):
        within = {"within": [{"choose": "part", "number": number, "count": 2, "low": low, "high": high}]}
        ops[f"part.{number}.seen"] = {"call": call, "inputs": "x", **within}
        if number == 1:
            ops["part.1.out"] = {"forward": "turned", "inputs": "y", **within}
            ops["part.1.fit"] = {"loss": "mse", "inputs": ["part.1.out", 0.1], **within}
            ops["part.1.step"] = {"update": ["turned"], "loss": "part.1.fit", **within}
    ops["part.seen"] = {"call": "either", "inputs": ["part.1.seen", "part.2.seen"]}
    return {**_document("alternatives", ops), "outputs": ["part.seen"]}


PARTED: Mapping[str, dict[str, Any]] = {
    "iterations": {**_document("iterations", _iterations()), "outputs": ["part.seen"]},
    "iterations-of-rows": {**_document("iterations-of-rows", _iterations(split=True)), "outputs": ["part.seen"]},
    "later-iterations": {**_document("later-iterations", _iterations(start=2)), "outputs": ["part.seen"]},
    "alternatives": alternatives(),
}
