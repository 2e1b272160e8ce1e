"""Specs with a table whose gradient is kept as rows, stepped lazily or as a whole, by an update of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.optimizers import random_optimizer

if TYPE_CHECKING:
    from random import Random

    from tests.properties.specs import Draft

LAZY: tuple[dict[str, object], ...] = (
    {"name": "adam", "lr": 0.02, "eps": 1e-4},
    {"name": "adam", "lr": 0.02, "eps": 1e-4, "betas": [0.5, 0.9]},
    {"name": "adagrad", "lr": 0.1, "eps": 1e-4},
    {"name": "adagrad", "lr": 0.1, "eps": 1e-4, "initial_accumulator_value": 0.1},
    {"name": "sgd", "lr": 0.1},
)


def add_rows(draft: Draft) -> None:
    """Add a table, one or two calls of it, a loss and an update; and sometimes an average."""
    random, table = draft.random, {"count": draft.size, "size": 3, "sparse": True}
    draft.models["words"] = {
        "layers": [{"embedding": table}, {"linear": draft.size}],
        "optimizer": {**random.choice(LAZY), "sparse": "lazy"} if draft.chance(0.6) else random_optimizer(random),
    }
    draft.ops["words_out"] = {"forward": "words", "inputs": "label"}
    draft.ops["words_loss"] = {"loss": random.choice(["mse", "huber"]), "inputs": ["words_out", random.choice("xy")]}
    loss = "words_loss"
    if draft.chance(0.3):
        draft.ops["words_again"] = {"forward": "words", "inputs": "label", "train": False}
        draft.ops["words_far"] = {"loss": "mse", "inputs": ["words_again", 0.3]}
        draft.ops["words_total"] = {"call": "add", "inputs": ["words_loss", "words_far"]}
        loss = "words_total"
    draft.ops["words_step"] = {"update": ["words"], "loss": loss, **_fields(random)}
    if draft.chance(0.3):
        draft.ops["words_mean"] = {"ema": "words", "decay": 0.5}


def _fields(random: Random) -> dict[str, object]:
    """Return fields of an update: mostly none or one."""
    clips = [{}, {}, {"clip": {"norm": 0.2}}, {"clip": {"value": 0.05}}, {"clip": {"norm": 0.1, "per": "parameter"}}]
    return {**random.choice(clips), **random.choice([{}, {}, {"accumulate": 2}, {"every": 2}])}
