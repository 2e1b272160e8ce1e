"""Specs with tables whose gradients are rows: some rows are named several times in a batch, others in none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _document(name: str, optimizer: dict[str, object], count: int) -> dict[str, Any]:
    table = {"count": count, "size": 2, "sparse": True}
    return {
        "graphspec": 1,
        "name": name,
        "rng": "portable",
        "inputs": {"x": {"shape": ["batch", 3]}, "label": {"shape": ["batch"], "dtype": "int64"}},
        "models": {"words": {"layers": [{"embedding": table}, {"linear": 3}], "optimizer": optimizer}},
        "ops": {
            "found": {"forward": "words", "inputs": "label"},
            "far": {"loss": "mse", "inputs": ["found", "x"]},
            "step": {"update": ["words"], "loss": "far"},
        },
        "outputs": ["far"],
    }


TABLES: Mapping[str, dict[str, Any]] = {
    "repeated-rows": _document("repeated-rows", {"name": "adagrad", "lr": 0.3, "sparse": "lazy"}, 3),
    "lazy-rows": _document("lazy-rows", {"name": "adam", "lr": 0.1, "betas": [0.5, 0.9], "sparse": "lazy"}, 9),
}
