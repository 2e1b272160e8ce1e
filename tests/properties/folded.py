"""Values in other shapes on their way to a loss: the rows of a batch stay, what is in a row is arranged anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.joining import find_place, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def fold_values(draft: Draft) -> None:
    """Add a term of a value that gets another axis, and perhaps goes back into a model in its first shape."""
    found = find_place(draft)
    if found is None:
        return
    update, value = found
    size = draft.size
    folded = draft.random.choice([["batch", 1, size], ["batch", size, 1], ["batch", -1, 1], ["batch", 1, -1, 1]])
    ops: dict[str, dict] = {
        "folded": {"call": "reshape", "inputs": value, "args": {"shape": folded}},
        "folded_bent": {"call": draft.random.choice(["tanh", "square", "neg", "sigmoid"]), "inputs": "folded"},
    }
    seen = "folded_bent"
    models = [name for name in draft.models if "layers" in draft.models[draft.root(name)]]
    models = [name for name in models if not draft.is_table(draft.root(name)) and draft.is_called(name)]
    if draft.chance(0.6):
        seen = "flat_again"
        shape = draft.random.choice([["batch", size], ["batch", -1]])
        ops[seen] = {"call": "reshape", "inputs": "folded_bent", "args": {"shape": shape}}
        if models and draft.chance(0.6):
            seen = "folded_seen"
            ops[seen] = {"forward": draft.random.choice(models), "inputs": "flat_again"}
    elif draft.chance(0.5):
        seen = "folded_mean"
        ops[seen] = {"call": "mean", "inputs": "folded_bent", "args": {"axis": [1, 2]}}
    ops["folded_loss"] = {"loss": draft.random.choice(["mse", "huber", "bce_with_logits"]), "inputs": [seen, 0.5]}
    join(draft, update, ops, "folded_loss")
