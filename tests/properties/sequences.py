"""Losses over sequences that are longer in one step than in another, in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.optimizers import random_optimizer

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def add_sequences(draft: Draft) -> None:
    """Add a model that reads sequences, and single rows, and an update of it that accumulates."""
    random, size = draft.random, draft.size
    draft.inputs["song"] = {"shape": ["batch", "length", size]}
    draft.models["singer"] = {"layers": [{"linear": 2}], "optimizer": random_optimizer(random)}
    loss, other = random.choice(["huber", "mse", "bce_with_logits"]), random.choice(["add", "sub"])
    ops: dict[str, dict] = {
        "sung": {"forward": "singer", "inputs": "song"},
        "song_loss": {"loss": loss, "inputs": ["sung", 0.3], **random.choice([{}, {"weight": 0.5}])},
        "glanced": {"forward": "singer", "inputs": "x"},
        "glance_loss": {"loss": random.choice(["l1", "mse"]), "inputs": ["glanced", -0.2]},
        "singer_loss": {"call": other, "inputs": ["song_loss", "glance_loss"]},
    }
    total = "singer_loss" if draft.chance(0.6) else "song_loss"
    draft.ops |= ops if total == "singer_loss" else {name: ops[name] for name in ("sung", "song_loss")}
    draft.ops["step_singer"] = {"update": ["singer"], "loss": total, "accumulate": random.choice([2, 3])}


def find_length(number: int) -> int:
    """Return how long the sequences of a step are, from 1."""
    return 1 + number % 3
