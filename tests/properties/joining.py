"""Where a further term goes: into the loss of an update that it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def find_place(draft: Draft) -> tuple[str, str] | None:
    """Return an update with a loss and a value that reaches its models; none where there is none."""
    updates = _find_updates(draft)
    if not updates:
        return None
    update = draft.random.choice(updates)
    wanted = set(draft.ops[update]["update"])
    values = [name for name in draft.values.usable() if draft.values.reach[name] & wanted]
    return (update, draft.random.choice(values)) if values else None


def find_called(draft: Draft, kind: str = "layers") -> tuple[str, str] | None:
    """Return an update with a loss and one of its models that is of a kind, `layers` or `class`, and takes features."""
    pairs = [(name, model) for name in _find_updates(draft) for model in draft.ops[name]["update"]]
    pairs = [(name, model) for name, model in pairs if kind in draft.models[draft.root(model)]]
    pairs = [(name, model) for name, model in pairs if not draft.is_table(draft.root(model))]
    return draft.random.choice(pairs) if pairs else None


def _find_updates(draft: Draft) -> list[str]:
    """Return the updates that have a loss, but for those for which another waits that takes the sum with theirs."""
    summed = {model for op in draft.ops.values() if "shared" in op for model in op["update"]}
    updates = {name: op for name, op in draft.ops.items() if "loss" in op and "update" in op}
    return [name for name, op in updates.items() if "shared" in op or summed.isdisjoint(op["update"])]


def join(draft: Draft, update: str, ops: dict, term: str) -> bool:
    """Add ops, and one of them to the loss of an update, unless something would come before itself; return which.

    A window of the update counts every step alike, whatever is added up.
    """
    draft.extend(ops, {f"sum_of_{term}": {"call": "add", "inputs": [draft.ops[update]["loss"], term]}}, update)
    op = draft.ops[update]
    if op["loss"] != f"sum_of_{term}":
        return False
    if "accumulate" in op:
        written = op["accumulate"]
        op["accumulate"] = {**(written if isinstance(written, dict) else {"steps": written}), "reduce": "steps"}
    return True
