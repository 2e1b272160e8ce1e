"""Terms of losses that some steps do without."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

CLOCKS: list[dict] = [
    {"every": 2},
    {"every": 3, "weight": 0.5},
    {"every": 2, "lazy": "none"},
    {"start": 2},
    {"until": 2},
]


def add_lazy_terms(draft: Draft) -> None:
    """Add a term that is not there in every step to the loss of an update, or two of them that are added up first."""
    updates = [name for name, op in draft.ops.items() if "loss" in op and "update" in op]
    if not updates:
        return
    update = draft.random.choice(updates)
    wanted = set(draft.ops[update]["update"])
    values = [name for name in draft.values.usable() if draft.values.reach[name] & wanted]
    if not values:
        return
    terms = {
        f"lazy{index}": {"loss": loss, "inputs": [draft.random.choice(values), 0.5], **draft.random.choice(CLOCKS)}
        for index, loss in enumerate(draft.random.sample(["mse", "huber"], draft.random.randint(1, 2)))
    }
    inner = {"lazies": {"call": "add", "inputs": [*terms]}} if len(terms) > 1 else {}
    whole = {"sum_of_lazy": {"call": "add", "inputs": [draft.ops[update]["loss"], *(inner or terms)]}}
    draft.extend({**terms, **inner}, whole, update)
