"""Ops of random specs that run on batches of some data sets alone, and optimizers that change by epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

WRITES = ("update", "ema", "copy", "assign")
WORDS: list[str | list[str]] = ["a", "b", "!a", "!b", ["a", "b"], ["!a", "!c"]]
FIRST: list[list[str]] = [["a", "!b"], ["b", "!a"], ["b", "!a"], ["a", "b"]]
"""Both sets are named: no word leaves an op without a set to run on."""
OPTIMIZERS: list[dict] = [
    {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    {"name": "sgd", "lr": {"schedule": "linear", "from": 0.1, "to": 0.0, "over": 3}},
    {"name": "adam", "lr": 0.02},
    {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
    {"name": "rmsprop", "lr": 0.01},
]


def name_datasets(draft: Draft) -> None:
    """Let some writes, or a loss and what is made from it, run on some data sets alone."""
    losses = [name for name, op in draft.ops.items() if "loss" in op and "update" not in op and "dataset" not in op]
    writes = [op for op in draft.ops.values() if any(kind in op for kind in WRITES)]
    if losses and draft.chance(0.4):
        draft.ops[draft.random.choice(losses)]["dataset"] = draft.random.choice(FIRST)
        return
    chosen = [op for op in writes if draft.chance(0.6)]
    for index, op in enumerate(chosen):
        op["dataset"] = draft.random.choice(WORDS if index else FIRST)


def change_optimizers(draft: Draft) -> None:
    """Let some optimizers change at epochs 2 or 3; nothing counts the updates of these."""
    for name, model in draft.models.items():
        ruled = any("optimizer" in group for group in model.get("groups", ()))
        counted = ruled or any(name in _updated(op) and _is_scheduled(op) for op in draft.ops.values())
        if "optimizer" in model and not (counted or _is_scheduled(model)) and draft.chance(0.7):
            epoch = draft.random.choice(["2", "2", "3"])
            model["optimizer"] = {"1": model["optimizer"], epoch: draft.random.choice(OPTIMIZERS)}


def _updated(op: dict) -> list[str]:
    found = op.get("update", [])
    return found if isinstance(found, list) else [found]


def _is_scheduled(holder: dict) -> bool:
    terms = [holder.get(field) for field in ("clip", "constraint", "regularizer")]
    return "'schedule'" in repr(terms)
