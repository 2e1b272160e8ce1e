"""Losses that bring a count of their own: labels that are left out, and functions of users that return (sum, count)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

CLOCKS = {"every", "start", "until", "dataset"}
KEPT = "tests.properties.users:kept"


def count_losses(draft: Draft) -> None:
    """Let some losses count by themselves, unless some terms are absent from some steps, or gradients are by values."""
    ops = draft.ops.values()
    is_lazy = any("loss" in op and "update" not in op and CLOCKS & op.keys() for op in ops)
    is_parted = "micro_batches" in draft.fields
    is_simple = all(set(_listed(op["wrt"])) <= draft.models.keys() for op in ops if "gradient" in op)
    if is_lazy or not (is_simple or not is_parted):
        return
    inner = {name for op in ops if op.get("call") not in (None, "add", "sub") for name in _listed(op["inputs"])}
    for name, op in draft.ops.items():
        if (
            "loss" in op
            and not (is_parted and name in inner)
            and "update" not in op
            and "reduction" not in op
            and draft.chance(0.6)
        ):
            _count(draft, op)


def _listed(names: str | list) -> list[str]:
    """Return the names among some operands."""
    return [each for each in ([names] if isinstance(names, str) else names) if isinstance(each, str)]


def _count(draft: Draft, op: dict) -> None:
    """Let a loss leave out a class, or be a function that counts rows."""
    if op["loss"] == "cross_entropy":
        op["args"] = {**op.get("args", {}), "ignore_index": draft.random.choice([0, 0, 1])}
        return
    given = [op["inputs"]] if isinstance(op["inputs"], str) else op["inputs"]
    is_batched = given[0] not in draft.fields.get("state", {})
    if (
        is_batched
        and op["loss"] in ("wasserstein", "hinge", "l1", "mse")
        and all(isinstance(each, float) for each in given[1:])
    ):
        op.pop("args", None)
        op |= {"loss": KEPT, "inputs": [given[0], "label"]}
