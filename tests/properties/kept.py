"""Models with penalties and a constraint of their own where layers of Keras can have them; elsewhere the spec has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.tied import declare

if TYPE_CHECKING:
    from tests.properties.specs import Draft

PENALTIES: tuple[dict, ...] = ({"l2": 0.2}, {"l2": 0.3}, {"l1": 0.02, "l2": 0.1})


def keep_terms(draft: Draft) -> None:
    """Add a model with penalties, called once or twice, and an update or two of it."""
    random = draft.random
    declare(draft, "keeper", "Keeper")
    keeper, names = draft.models["keeper"], random.choice([["weight"], ["weight", "bias"]])
    is_held = draft.chance(0.3)
    penalties = PENALTIES[: -1 if is_held else None]  # of a weight held at zero nobody could tell the sign
    keeper["regularizer"] = [{**random.choice(penalties), "match": name} for name in names]
    keeper |= {"constraint": "non_negative"} if is_held else {}
    losses = [_add_loss(draft, f"kept{number}") for number in range(random.choice([1, 2, 2]))]
    clock = random.choice([{}, {}, {"every": 2}, {"accumulate": 2}, {"clip": {"norm": 0.1}}])
    if len(losses) == 2 and draft.chance(0.5):
        draft.ops["step_kept"] = {"update": ["keeper"], "loss": losses[0], **clock}
        draft.ops["step_kept_again"] = {"update": ["keeper"], "loss": losses[1], "after": ["step_kept"]}
        return
    draft.ops["kept_loss"] = (
        {"call": "add", "inputs": losses} if len(losses) == 2 else {"call": "neg", "inputs": losses}
    )
    draft.ops["step_kept"] = {"update": ["keeper"], "loss": "kept_loss", **clock}


def _add_loss(draft: Draft, stem: str) -> str:
    """Add a call of the model, and a loss of that; return its name."""
    draft.ops[f"{stem}_seen"] = {"forward": "keeper", "inputs": draft.random.choice(["x", "y", *draft.values.usable()])}
    kind = draft.random.choice(["mse", "huber", "bce_with_logits"])
    draft.ops[f"{stem}_loss"] = {"loss": kind, "inputs": [f"{stem}_seen", 1.0]}
    return f"{stem}_loss"
