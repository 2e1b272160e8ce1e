"""Updates with parameters that a loss does not reach: in some steps, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.lazy import CLOCKS
from tests.properties.optimizers import random_optimizer
from tests.properties.tied import declare
from tests.properties.transformed import SINGLE

if TYPE_CHECKING:
    from tests.properties.specs import Draft

WORDS = ("skip", "skip", "zero")


def add_gaps(draft: Draft) -> None:
    """Let updates say what becomes of absent gradients, and one of them step a model that lacks some."""
    for op in draft.ops.values():
        if "update" in op and draft.chance(0.3):
            op["missing"] = draft.random.choice(WORDS)
    updates = [name for name, op in draft.ops.items() if "update" in op and "loss" in op]
    if not updates or "spare" in draft.models:
        return
    update = draft.random.choice(updates)
    made = _declare_idler(draft) if draft.chance(0.3) else _declare_lazy(draft)
    whole = {"sum_of_spare": {"call": "add", "inputs": [draft.ops[update]["loss"], "spare_loss"]}}
    draft.extend(made, whole, update)
    if draft.ops[update]["loss"] == "sum_of_spare":
        draft.ops[update] |= {"update": [*draft.ops[update]["update"], "spare"], "missing": draft.random.choice(WORDS)}
        _count_steps(draft.ops[update])
        if "accumulate" in draft.ops[update]:  # the losses before may be sums
            draft.ops[update]["accumulate"] = {"steps": 2, "reduce": "steps"}
        if draft.chance(0.4):
            _take_sets(draft, update)


def _count_steps(op: dict) -> None:
    """Let what clips for several optimizers count steps: it could not count the updates of one of them."""
    if "clip" in op and "optimizer" not in op:
        limits = op["clip"].items()
        op["clip"] = {name: {**one, "clock": "steps"} if isinstance(one, dict) else one for name, one in limits}


def _declare_lazy(draft: Draft) -> dict:
    """Declare a model on which only a term depends that is not there in every step."""
    declared: dict = {"parameter": {"shape": [draft.size], "init": 0.5}, "optimizer": random_optimizer(draft.random)}
    more = draft.random.choice([{}, {}, {"constraint": {"clip": [-0.3, 0.45]}}, {"regularizer": {"l2": 0.2}}])
    draft.models["spare"] = {**declared, **more}
    clock = draft.random.choice(CLOCKS)
    return {"spare_seen": {"forward": "spare"}, "spare_loss": {"loss": "mse", "inputs": ["spare_seen", 0.1], **clock}}


def _declare_idler(draft: Draft) -> dict:
    """Declare a model with a parameter that it does not use."""
    declare(draft, "spare", "Idler")
    while draft.models["spare"]["optimizer"]["name"] == "lion":
        declare(draft, "spare", "Idler")
    seen = {"forward": "spare", "inputs": draft.random.choice(["x", "y"])}
    return {"spare_seen": seen, "spare_loss": {"loss": "mse", "inputs": ["spare_seen", 0.5]}}


def _take_sets(draft: Draft, update: str) -> None:
    """Let an update take its gradients as a set with gaps, by way of a transform or of a sum with another."""
    op = {key: value for key, value in draft.ops[update].items() if key not in ("loss", "clip")}
    wrt = {"wrt": op["update"], "unconnected": "skip"}
    name, other = draft.new("set"), f"{draft.new('set')}_more"
    draft.ops[name] = {"gradient": draft.ops[update]["loss"], **wrt}
    plain = not any("class" in draft.models[model] for model in op["update"])
    choices = [one for one in SINGLE if plain or one["transform"] != "noise"]
    if draft.chance(0.5):
        draft.ops[other] = {**draft.random.choice(choices), "inputs": name}
    else:
        half = {"call": "mul", "inputs": [name, 0.5]}
        joint = draft.random.choice([{"call": "add"}, {"call": "sub"}, {"transform": "project"}])
        draft.ops |= {f"{other}_half": half, other: {**joint, "inputs": [name, f"{other}_half"]}}
    draft.ops[update] = {**op, "gradients": other}
