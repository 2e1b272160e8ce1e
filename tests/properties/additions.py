"""What is added to some random specs when all else is drawn: rarer parts of the language, woven into what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.properties.models import random_growing_layers
from tests.properties.tied import add_tied, declare

if TYPE_CHECKING:
    from tests.properties.specs import Draft

STARTS = {1: ["1 epochs", "1 samples"], 2: ["1.5 epochs", "4 samples", "2 epochs"]}
"""Other words for the first steps, of 2 steps to an epoch and 3 samples to a step."""
ENDS = ["1 epochs", "3 samples", "6 samples"]


def add_more(draft: Draft) -> None:
    """Add some of these."""
    for add in draft.random.sample(ADDITIONS, draft.random.randint(1, 3)):
        add(draft)


def grow_images(draft: Draft) -> None:
    """Let a model without statistics make its images larger."""
    plain = [
        name
        for name, model in draft.models.items()
        if "layers" in model and not draft.with_buffers(name) and not draft.is_table(name)
    ]
    if plain:
        draft.models[draft.random.choice(plain)]["layers"] = random_growing_layers(draft.random, draft.size)


# ------------------------------------------------------------ terms


def add_term(draft: Draft) -> None:
    """Add a term to the loss of an update: of drawn classes, of rows in another order, of functions of the user's."""
    update = draft.random.choice([name for name, op in draft.ops.items() if "loss" in op and "update" in op] or [None])
    if update is None:
        return
    wanted = set(draft.ops[update]["update"])
    values = [name for name in draft.values.usable() if draft.values.reach[name] & wanted]
    if values:
        made = draft.random.choice(TERMS)(draft, draft.random.choice(values))
        draft.extend(made, {"sum_of_more": {"call": "add", "inputs": [draft.ops[update]["loss"], "more"]}}, update)


def _classify(draft: Draft, value: str) -> dict:
    drawn = {"random": "randint", "shape": ["batch"], "args": {"low": 0, "high": draft.size}}
    return {"drawn": drawn, "more": {"loss": "cross_entropy", "inputs": [value, "drawn"]}}


def _mix(draft: Draft, value: str) -> dict:
    level = {"call": "mean", "inputs": value, "args": {"axis": 1}}
    mixed = {"call": "gather", "inputs": ["level", "places"], "args": {"axis": 0}}
    places = {"random": "permutation", "shape": ["batch"]}
    bent = {"call": "tanh", "inputs": "mixed"}
    return {
        "places": places, "level": level, "mixed": mixed, "bent": bent,
        "more": {"loss": "huber", "inputs": ["level", "bent"]},
    }  # fmt: skip


def _call_user(draft: Draft, value: str) -> dict:
    args = {"args": {"strength": 2.0}} if draft.chance(0.5) else {}
    bent = {"call": "tests.properties.users:bend", "inputs": value, **args}
    other = draft.random.choice(["x", "y"])
    loss = draft.random.choice(["mse", "bce_with_logits", "tests.properties.users:gap"])
    return {"bent": bent, "more": {"loss": loss, "inputs": ["bent", other if loss != "bce_with_logits" else 1.0]}}


TERMS: list[Callable[[Draft, str], dict]] = [_classify, _mix, _call_user, _call_user]


# ------------------------------------------------------------ updates and followers


def add_unconnected(draft: Draft) -> None:
    """Add a model with a parameter that it does not use: its gradient is zero, which weight decay turns into steps."""
    declare(draft, "idler", "Idler")
    while draft.models["idler"]["optimizer"]["name"] == "lion":  # of which nothing is told where a gradient is zero
        declare(draft, "idler", "Idler")
    draft.ops["idler_seen"] = {"forward": "idler", "inputs": draft.random.choice(draft.values.usable())}
    draft.ops["idler_loss"] = {"loss": "mse", "inputs": ["idler_seen", 0.5]}
    draft.ops["idler_slopes"] = {"gradient": "idler_loss", "wrt": ["idler"], "unconnected": "zero"}
    clip = draft.random.choice([{}, {"clip": {"norm": 0.1}}])
    draft.ops["idler_step"] = {"update": ["idler"], "gradients": "idler_slopes", **clip}
    for op in draft.ops.values():
        if "gradient" in op and "unconnected" not in op and draft.chance(0.3):
            op["unconnected"] = draft.random.choice(["zero", "skip"])


def copy_into_trained(draft: Draft) -> None:
    """Let models into which something is copied run in train mode, and copy into some that do."""
    for name, op in draft.ops.items():
        slow = op.get("into")
        calls = [one for one in draft.ops.values() if one.get("forward") == slow]
        if "copy" in op and calls:
            draft.random.choice(calls)["train"] = True
        elif "ema" in op and any(one.get("train") is True for one in calls):
            kept = {key: value for key, value in op.items() if key in ("into", "every", "start", "after")}
            draft.ops[name] = {"copy": op["ema"], **kept}


def name_durations(draft: Draft) -> None:
    """Say ``start`` and ``until`` in epochs and samples, and write some where there are none."""
    for op in draft.ops.values():
        if "start" in op:
            op["start"] = draft.random.choice(STARTS.get(op["start"], (op["start"],)))
        elif "until" in op:
            op["until"] = draft.random.choice(ENDS) if isinstance(op["until"], int) else op["until"]
        elif "update" in op and "every" not in op and draft.chance(0.3):
            op |= draft.random.choice([{"start": "2 epochs"}, {"until": "1 epochs"}, {"start": "6 samples"}])


ADDITIONS = (grow_images, add_term, add_tied, add_unconnected, copy_into_trained, name_durations)
