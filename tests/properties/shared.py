"""Two updates of one model with optimizers of their own, of which one steps it on the sum of both gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.causality import is_circular
from tests.properties.optimizers import UNDECAYED, random_optimizer

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def share_models(draft: Draft) -> None:
    """Add a second update of a model that one update steps, with a head of its own."""
    updates = {name: op for name, op in draft.ops.items() if "update" in op}
    owned = [model for op in updates.values() for model in op["update"]]
    for name in draft.random.sample(sorted(updates), len(updates)):
        models = [model for model in updates[name]["update"] if owned.count(model) == 1]
        values = [value for value in draft.values.usable() if draft.values.reach[value].intersection(models)]
        if values and _add_update(draft, name, models, draft.random.choice(values)):
            return


def _add_update(draft: Draft, first: str, models: list[str], value: str) -> bool:
    """Add an update of a model and of a head; return whether nothing has to come before itself."""
    shared = [model for model in models if model in draft.values.reach[value]][:1]
    if "class" in draft.models[shared[0]]:
        return False  # it may share a weight with a third
    updated = draft.ops[first]["update"]
    if any("optimizer" in group for model in updated for group in draft.models[model].get("groups", ())):
        return False
    ops = {
        "head_seen": {"forward": "head"},
        "headed": {"call": "add", "inputs": [value, "head_seen"]},
        "head_loss": {"loss": draft.random.choice(["mse", "huber"]), "inputs": ["headed", 0.3]},
        "step_head": {"update": [*shared, "head"], "loss": "head_loss", "optimizer": random_optimizer(draft.random)},
    }
    clocks = [{}, {}, {"clip": {"norm": 0.1}}, {"every": 2}, {"accumulate": 2}, {"start": 2}]
    ops["step_head"] |= draft.random.choice(clocks)
    is_first = len(draft.ops[first]["update"]) == 1 or draft.chance(0.5)
    owner, giver = (first, "step_head") if is_first else ("step_head", first)
    found = {**draft.ops, **ops}
    found[owner] = {**found[owner], "shared": "sum"}
    waits = found[giver].get("loss") or found[giver]["gradients"]
    after = [*found[owner].get("after", []), *(waits if isinstance(waits, list) else [waits])]
    if is_circular({**found, owner: {**found[owner], "after": after}}):
        return False
    groups = draft.models[shared[0]].get("groups", ())
    if any("weight_decay" in group for group in groups) and ops["step_head"]["optimizer"]["name"] in UNDECAYED:
        return False
    draft.models["head"] = {
        "parameter": {"shape": [draft.size], "init": 0.5},
        "optimizer": random_optimizer(draft.random),
    }
    draft.ops = found
    return True
