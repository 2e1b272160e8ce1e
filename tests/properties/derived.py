"""Specs with derived models: inner steps in a row, of both orders, and a loss at the weights that they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.properties.joining import find_called, join
from tests.properties.scheduled import random_curve
from tests.properties.tied import declare

if TYPE_CHECKING:
    from tests.properties.specs import Draft

REFUSED = ("frozen", "swap", "recomputes", "on_overflow", "checkpoint")
"""Words of a draft that has no place for them."""


CLASSES: Mapping[str, tuple[str, ...]] = {
    "Coder": ("bias", "weight"),
    "Reader": ("scale", "weight"),
    "Mirror": ("bias", "weight"),
    "Speaker": ("scale", "weight"),
    "Louder": (),
    "Idler": (),
    "Keeper": ("bias", "weight"),
}
"""Classes of the user's of which a model is derived, and names of some of the parameters that their calls use.

What is recomputed is refused.
"""


def add_derived(draft: Draft) -> None:
    """Add one to three inner steps of a model, and what their weights give to the loss of an update of the model."""
    found = find_called(draft)
    if found is not None and found[1] in "abcde" and has_place(draft):
        _derive(draft, *found, ("bias", "weight$"), {})


def derive_class(draft: Draft) -> None:
    """Do the same to a model of a class of the user's: one that there is, or another."""
    if not has_place(draft):
        return
    found = find_called(draft, "class")
    if found is None or draft.chance(0.6):
        found = _add_class(draft)
    kind = str(draft.models[found[1]]["class"]).rpartition(":")[2]
    # What an idler does not use has no gradient.
    missing = {"unconnected": draft.random.choice(["zero", "skip"])} if kind == "Idler" else {}
    _derive(draft, *found, CLASSES[kind], missing)


def has_place(draft: Draft) -> bool:
    """Return whether a draft has a place for derived models, and none yet."""
    written = repr((draft.models, draft.ops))
    is_free = not {"micro_batches", "precision"} & draft.fields.keys() and not any(word in written for word in REFUSED)
    return is_free and "fast0" not in draft.ops


def _add_class(draft: Draft) -> tuple[str, str]:
    """Add a model of a class and its update; return the update and the model."""
    kind = draft.random.choice([each for each in CLASSES if each != "Keeper"])  # whose penalties another place adds
    declare(draft, "tuned", kind)
    while kind == "Idler" and draft.models["tuned"]["optimizer"]["name"] == "lion":  # silent where a gradient is zero
        declare(draft, "tuned", kind)
    draft.ops["tuned_seen"] = {"forward": "tuned", "inputs": draft.random.choice(["x", "y"])}
    draft.ops["tuned_fit"] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": ["tuned_seen", 0.4]}
    missing = {"missing": draft.random.choice(["zero", "skip"])} if kind == "Idler" else {}
    draft.ops["tuned_step"] = {"update": ["tuned"], "loss": "tuned_fit", **missing}
    return "tuned_step", "tuned"


def _derive(draft: Draft, update: str, model: str, matches: tuple[str, ...], missing: dict[str, str]) -> None:
    """Add inner steps of a model, and a loss at the weights that they lead to, to the loss of an update."""
    random, ops = draft.random, dict[str, dict]()
    weights = model
    for number in range(random.choice([1, 1, 2, 3])):
        stem = f"inner{number}"
        stopped = {"stop": True} if draft.chance(0.15) else {}
        way, order = f"{stem}_slopes", random.choice([1, 2])
        ops[stem] = {"forward": weights, "inputs": random.choice(["x", "y"]), **_call_fields(draft)}
        ops[f"{stem}_loss"] = {"loss": random.choice(["mse", "huber"]), "inputs": [stem, 0.1]}
        ops[way] = {"gradient": f"{stem}_loss", "wrt": weights, **stopped, **missing}
        if order == 1 and draft.chance(0.3):
            ops[f"{stem}_way"] = {"transform": "normalize", "inputs": way}
            way = f"{stem}_way"
        match = random.choice(matches) if matches else ""
        groups = {"groups": [{"match": match, "lr": random.choice([0.0, -0.1])}]}
        rates = {"lr": random.choice([0.3, 0.05, -0.1]), **(groups if draft.chance(0.3) and match else {})}
        ops[f"fast{number}"] = {"adapt": weights, "gradients": way, **rates, **random.choice([{}, {"order": order}])}
        if way.endswith("_way"):
            ops[f"fast{number}"]["order"] = 1
        weights = f"fast{number}"
    ops["outer"] = {"forward": weights, "inputs": random.choice(draft.values.usable()), **_call_fields(draft)}
    ops["outer_loss"] = {"loss": random.choice(["mse", "bce_with_logits"]), "inputs": ["outer", 0.25]}
    writes = [name for name, op in draft.ops.items() if {"update", "ema", "copy"} & op.keys()]
    if writes and draft.chance(0.2):
        ops["fast0"]["after"] = [random.choice(writes)]
    join(draft, update, ops, "outer_loss")


def learn_rates(draft: Draft) -> None:
    """Let some learning rates of derived models follow schedules, or be a number that an update learns."""
    adapts = [op for op in draft.ops.values() if "adapt" in op]
    update = next((name for name, op in draft.ops.items() if op.get("loss") == "sum_of_outer_loss"), None)
    for op in adapts:
        if draft.chance(0.5):
            op["lr"] = random_curve(draft.random, op["lr"])
        elif update is not None:
            op["lr"] = "rate"
        for group in op.get("groups", ()) if draft.chance(0.3) else ():
            group["lr"] = random_curve(draft.random, 0.1) if update is None or draft.chance(0.5) else "rate"
    if update is None or "rate" not in [each.get("lr") for op in adapts for each in (op, *op.get("groups", ()))]:
        return
    draft.models["rate"] = {
        "parameter": {"shape": [], "init": 0.2},
        "optimizer": draft.random.choice([{"name": "sgd", "lr": 0.05}, {"name": "adam", "lr": 0.02}]),
    }
    if draft.chance(0.4) and "optimizer" not in draft.ops[update]:
        draft.ops[update]["update"] = [*draft.ops[update]["update"], "rate"]
    else:
        draft.ops["rate_step"] = {"update": ["rate"], "loss": "sum_of_outer_loss"}


def _call_fields(draft: Draft) -> dict:
    """Return fields of a call: mostly none."""
    return draft.random.choice([{}, {}, {}, {"train": False}, {"snapshot": True}])
