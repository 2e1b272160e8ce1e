"""Random models of classes that share a weight or a module, their updates, and what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.optimizers import random_optimizer
from tests.properties.values import add_penalty

if TYPE_CHECKING:
    from tests.properties.specs import Draft

TRAITS = {"buffers": False, "rng": False, "batch_coupled": False}


def add_tied(draft: Draft) -> None:
    """Add a coder and a reader of its code with one weight, or one model of two layers with one weight."""
    _add_models(draft, _declare_models(draft))


def share_modules(draft: Draft) -> None:
    """Add two models that hold one module, whose calls are in training here and in evaluation there."""
    if "first_loss" in draft.ops:
        return
    declare(draft, "speaker", "Speaker")
    declare(draft, "hearer", draft.random.choice(["Louder", "Speaker"]), ties=["speaker.inner.weight"])
    _add_models(draft, draft.random.choice([["speaker", "hearer"], ["hearer", "speaker"]]))
    alike = {"train": draft.chance(0.6), "checkpoint": True} if draft.chance(0.25) else None
    for name, op in list(draft.ops.items()):
        if op.get("forward") in ("speaker", "hearer"):
            draft.ops[name] = {**op, **(alike or draft.random.choice([{}, {"train": True}, {"train": False}]))}
    draft.ops["heard"] = {"forward": draft.random.choice(["speaker", "hearer"]), "inputs": "y"}
    modes = [{"mode": "eval"}, {"mode": ["train", "eval"]}, {"mode": ["eval", "train"], "train": False}, {"every": 2}]
    draft.ops["heard"] |= draft.random.choice(modes)


def _add_models(draft: Draft, models: list[str]) -> None:
    """Add the loss of a chain of models with a shared weight, updates of some of them, and what follows these."""
    given = draft.random.choice(draft.values.usable())
    loss = _add_loss(draft, "first", models, given)
    if draft.chance(0.25):
        loss = _penalise(draft, loss, models)
    updates = _add_updates(draft, models, loss)
    if draft.chance(0.3):
        _add_average(draft, models)
    if updates and draft.chance(0.5):
        late = {"forward": draft.random.choice(models), "inputs": "y", "after": draft.random.choice(updates)}
        draft.extend({"late": late}, {}, None)
    others = [name for name, op in draft.ops.items() if "loss" in op and "update" in op and name not in updates]
    others = [name for name in others if draft.values.reach[given] & set(draft.ops[name]["update"])]
    if others and draft.chance(0.5):
        update = draft.random.choice(others)
        draft.extend({}, {"sum_of_tied": {"call": "add", "inputs": [draft.ops[update]["loss"], "first_loss"]}}, update)


def _declare_models(draft: Draft) -> list[str]:
    """Declare what shares a weight; return the models in the order of their calls."""
    if draft.chance(0.2):
        declare(draft, "mirror", "Mirror")
        return ["mirror"]
    declare(draft, "coder", "Coder")
    declare(draft, "reader", "Reader", ties=["coder.weight"])
    return ["coder", "reader"]


def declare(draft: Draft, name: str, kind: str, **traits: object) -> None:
    """Declare a model of a class of the user's."""
    draft.models[name] = {
        "class": f"tests.properties.users:{kind}",
        "args": {"size": draft.size},
        "traits": {**TRAITS, **traits},
        "optimizer": random_optimizer(draft.random),
    }


def _add_loss(draft: Draft, stem: str, models: list[str], given: str) -> str:
    """Add the loss of a chain of models; return its name."""
    value = given
    for model in models:
        value, before = f"{stem}_{model}", value
        draft.ops[value] = {"forward": model, "inputs": before}
        draft.values.add(value, [before], [model])
        draft.values.hidden.add(value)
    loss = f"{stem}_loss"
    draft.ops[loss] = {"loss": draft.random.choice(["mse", "huber", "bce_with_logits"]), "inputs": [value, 1.0]}
    draft.reached[loss] = draft.losses[loss] = draft.values.reach[value]
    draft.terms[loss] = [loss]
    return loss


def _penalise(draft: Draft, loss: str, models: list[str]) -> str:
    """Add a penalty on a gradient; return the sum, or the loss alone where a part of the sum does not reach all."""
    add_penalty(draft, loss)
    terms = draft.terms.get(f"{loss}_sum", [])
    return f"{loss}_sum" if terms and all(draft.reached[term] >= set(models) for term in terms) else loss


def _add_average(draft: Draft, models: list[str]) -> None:
    """Add a hidden average of one of the models, and a call of it."""
    draft.ops["mean_tied"] = {"ema": draft.random.choice(models), "decay": draft.random.choice([0.5, 0.9])}
    draft.ops["mean_seen"] = {"forward": "mean_tied", "inputs": draft.random.choice(["x", "y"])}
    draft.ops["mean_tied"] |= draft.random.choice([{}, {"every": 2}, {"use": {"eval": "swap"}}])


def _add_updates(draft: Draft, models: list[str], loss: str) -> list[str]:
    """Add one update of all models with one optimizer, from a loss or a set, or one or two of one model."""
    clip = draft.random.choice([{}, {"clip": {"norm": 0.1}}, {"clip": {"value": 0.05}}])
    clock = {"every": 2} if draft.chance(0.15) else {}
    whole = {"update": models, "optimizer": random_optimizer(draft.random), **clip, **clock}
    match draft.random.choice(["joint", "joint", "set", "part of a set", "one", "twice"]):
        case "joint":
            draft.ops["step_tied"] = {**whole, "loss": loss}
        case "set":
            draft.ops["tied_slopes"] = {"gradient": loss, "wrt": models}
            draft.ops["tied_short"] = {"transform": "clip_norm", "inputs": "tied_slopes", "args": {"norm": 0.2}}
            draft.ops["step_tied"] = {**whole, "gradients": "tied_short"}
        case "part of a set":
            draft.ops["tied_slopes"] = {"gradient": loss, "wrt": models}
            draft.ops["step_tied"] = {"update": models[-1:], "gradients": "tied_slopes", **clock}
        case kind:
            one = draft.random.choice(models)
            draft.ops["step_tied"] = {"update": [one], "loss": loss, **clip, **clock}
            if kind == "twice":
                again = _add_loss(draft, "second", models, draft.random.choice(draft.values.usable()))
                draft.ops["step_again"] = {"update": [one], "loss": again, "after": ["step_tied"]}
    return [name for name in ("step_tied", "step_again") if name in draft.ops]
