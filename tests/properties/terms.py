"""Groups, constraints and regularizers of random models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.optimizers import UNDECAYED, random_optimizer
from tests.properties.scheduled import random_curve

if TYPE_CHECKING:
    from tests.properties.specs import Draft

CONSTRAINTS: list[object] = [
    "non_negative",
    {"clip": [-0.3, 0.4]},
    {"max_norm": 0.6, "match": "weight|value"},
    {"unit_norm": True, "match": "weight|value"},
    [{"max_norm": 1}, {"clip": [-0.5, 0.5]}],
]
REGULARIZERS: list[object] = [
    {"l2": 0.2},
    {"l1": 0.05},
    {"l1": 0.02, "l2": 0.1, "match": "weight|value"},
    [{"l2": 0.1}, {"l2": 0.3, "match": "weight|value"}],
]


MOVED = (
    ("groups", "lr_scale"),
    ("groups", "weight_decay"),
    ("constraint", "max_norm"),
    ("regularizer", "l1"),
    ("regularizer", "l2"),
)
"""The numbers that may follow a schedule, by what they are in."""


def add_terms(draft: Draft) -> None:
    """Let some of the models that are updated say more of how."""
    owned = sorted({model for op in draft.ops.values() for model in op.get("update", [])})
    for model in (name for name in owned if "class" not in draft.models[name]):
        if draft.chance(0.5):
            _add_groups(draft, model)
        if draft.chance(0.4):
            draft.models[model]["constraint"] = draft.random.choice(CONSTRAINTS)
        if draft.chance(0.5):
            draft.models[model]["regularizer"] = draft.random.choice(REGULARIZERS)
    updates = [op for op in draft.ops.values() if "update" in op]
    if updates and draft.chance(0.2):
        draft.random.choice(updates)["constraint"] = draft.random.choice([{"clip": [-0.2, 0.2]}, {"max_norm": 0.5}])
    if draft.chance(0.5):
        _move_terms(draft)


def _add_groups(draft: Draft, model: str) -> None:
    """Divide the parameters of a model; of those of layers, what is frozen or has its own rule leaves some to step."""
    declared = draft.models[draft.root(model)]
    updates = [op for op in draft.ops.values() if model in op.get("update", [])]
    whole = [op["optimizer"] for op in updates if "optimizer" in op] or [draft.models[model].get("optimizer", {})]
    if any(each.get("name") in UNDECAYED for each in whole):
        return
    changes: list[dict] = [{"lr_scale": 3}, {"weight_decay": 0.3}, {"lr_scale": 0.5, "weight_decay": 0}]
    if "parameter" in declared:
        draft.models[model]["groups"] = [{"match": "value", **draft.random.choice(changes)}]
        return
    last = _match_last(declared["layers"])
    if all("name" in each for each in whole) and not any("shared" in op for op in updates) and draft.chance(0.5):
        muon = {"name": "muon", "lr": 0.02, "ns_steps": 3, "eps": 1e-3, "nesterov": draft.chance(0.5)}
        own = muon if draft.chance(0.3) else random_optimizer(draft.random)
        match = last if own is muon or draft.chance(0.5) else "bias"
        draft.models[model]["groups"] = [{"match": match, "optimizer": own}]
        return
    groups = [{"match": last, **draft.random.choice(changes)}]
    if draft.chance(0.5):
        frozen = draft.chance(0.6)
        groups.append({"match": "bias", **({"frozen": True} if frozen else draft.random.choice(changes))})
    draft.models[model]["groups"] = groups


def _match_last(layers: list) -> str:
    """Return what matches the weight of the last linear layer."""
    last = max(index for index, layer in enumerate(layers) if isinstance(layer, dict) and "linear" in layer)
    return f"^{last}[.]weight"


def match_layers(draft: Draft) -> None:
    """Let groups match the layers that their models have in the end."""
    for name, model in draft.models.items():
        for group in model.get("groups", ()):
            if group["match"].endswith("[.]weight"):
                group["match"] = _match_last(draft.models[draft.root(name)]["layers"])


def _move_terms(draft: Draft) -> None:
    """Let some numbers of groups, constraints and regularizers follow schedules."""
    holders = [*draft.models.values(), *draft.ops.values()]
    for optimizer in (each["optimizer"] for each in holders if isinstance(each.get("optimizer"), dict)):
        if "betas" in optimizer and optimizer["name"] != "schedule_free_adamw" and draft.chance(0.5):
            first, second = optimizer["betas"]
            optimizer["betas"] = [random_curve(draft.random, first), second]
    for holder in holders:
        for field in ("groups", "constraint", "regularizer"):
            if field in holder and draft.chance(0.3):
                holder[field] = _move(draft, field, holder[field])


def _move(draft: Draft, field: str, term: object) -> object:
    """Return what stands in a field with some of its numbers changing."""
    if isinstance(term, list):
        return [_move(draft, field, each) for each in term]
    if not isinstance(term, dict):
        return term
    found = dict(term)
    for of, name in MOVED:
        if of == field and found.get(name) and draft.chance(0.7):
            found[name] = _follow(draft, found[name])
    if field == "constraint" and "clip" in found:
        found["clip"] = [each if draft.chance(0.3) else _follow(draft, each) for each in found["clip"]]
    return found


def _follow(draft: Draft, start: float) -> dict:
    """Return a schedule from a number on; half of them count updates."""
    curve = random_curve(draft.random, float(start))
    return {**curve, **draft.random.choice([{}, {}, {"clock": "updates"}, {"clock": "steps"}, {"clock": "epochs"}])}
