"""Losses that bring a count of their own: labels that are left out, and functions of users that return (sum, count)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

KEPT = "tests.properties.users:kept"


def count_losses(draft: Draft) -> None:
    """Let some losses count by themselves, unless micro-batches take gradients by values, and multiply some sets."""
    ops = draft.ops.values()
    sets = [op for op in ops if "gradient" in op and set(_listed(op["wrt"])) <= draft.models.keys()]
    if "micro_batches" in draft.fields and len(sets) < sum(1 for op in ops if "gradient" in op):
        return
    for op in ops:
        if "loss" in op and "update" not in op and "reduction" not in op and draft.chance(0.6):
            _count(draft, op)
    for op in sets:
        if draft.chance(0.3):
            op["grad_outputs"] = op["gradient"]


def _listed(names: str | list) -> list[str]:
    """Return the names among some operands."""
    return [each for each in ([names] if isinstance(names, str) else names) if isinstance(each, str)]


def _count(draft: Draft, op: dict) -> None:
    """Let a loss leave out a class, or be a function that counts rows."""
    if op["loss"] == "cross_entropy":
        op["args"] = {**op.get("args", {}), "ignore_index": draft.random.choice([0, 0, 1])}
        return
    given = [op["inputs"]] if isinstance(op["inputs"], str) else op["inputs"]
    source = draft.ops.get(given[0], {})
    is_batched = given[0] not in draft.fields.get("state", {}) and not ("forward" in source and "inputs" not in source)
    if (
        is_batched
        and op["loss"] in ("wasserstein", "hinge", "l1", "mse", "huber")
        and all(isinstance(each, float) for each in given[1:])
    ):
        op.pop("args", None)
        op |= {"loss": KEPT, "inputs": [given[0], "label"]}
