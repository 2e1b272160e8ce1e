"""Loss scales, and what gradients that are not finite stop, with overflows planted in some of the updates."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.properties.causality import as_list, find_predecessors
from tests.properties.planting import STEEP

if TYPE_CHECKING:
    from tests.properties.specs import Draft

SCALES: list[object] = [
    "dynamic",
    1024,
    {"kind": "fixed", "initial": 3.0},
    {"initial": 4, "growth_steps": 1},
    {"initial": 32, "growth_steps": 2, "backoff_factor": 0.25},
    {"initial": 7, "growth_steps": 1, "growth_factor": 3, "backoff_factor": 0.3},
    {"initial": 2, "growth_steps": 2, "min_scale": 1.5},
    {"initial": 1e38, "growth_steps": 1, "growth_factor": 16},
]
ONCE_HELD = ("group", "all", "own")
"""Policies under which an update never sees a gradient of its own that is not finite."""


def add_overflow(draft: Draft) -> None:
    """Scale losses, or say at updates what is to happen, and plant overflows in the losses of some of them."""
    updates = [name for name, op in draft.ops.items() if "update" in op]
    unbuilt = (op for op in draft.ops.values() if "accumulate" in op and op.get("missing") == "skip")
    if not updates or any(unbuilt):
        return
    is_scaled = draft.chance(0.6)
    if is_scaled:
        draft.fields["precision"] = {**draft.fields.get("precision", {}), "loss_scale": draft.random.choice(SCALES)}
    for name in updates:
        _add_policies(draft, name, likely=0.35 if is_scaled else 0.6)
    for op in (draft.ops[name] for name in updates if "accumulate" in draft.ops[name]):
        if draft.chance(0.5):
            _say_of_windows(draft, op)
    _plant(draft, updates, is_scaled=is_scaled)
    held = [name for name in updates if _is_held(draft, name, is_scaled=is_scaled)]
    own = Random(repr(draft.ops))  # its own numbers: what is drawn behind this stays the same
    _plant_behind(draft, held, own)
    _steepen(draft, [name for name in updates if name not in held], held, own)
    _pace(draft, updates, Random(repr(draft.ops)))


def _add_policies(draft: Draft, name: str, *, likely: float) -> None:
    words = ["group", "group", "own", "own", "apply"]
    if not _find_ordered(draft):
        words += ["all", "all"]
    if draft.chance(likely):
        draft.ops[name]["on_overflow"] = draft.random.choice(words)


def settle_policies(draft: Draft) -> None:
    """Let no update say ``all`` where what was added since has put it before the gradient of another."""
    asking = [op for op in draft.ops.values() if op.get("on_overflow") == "all"]
    if asking and _find_ordered(draft):
        for op in asking:
            op["on_overflow"] = "group"


def _say_of_windows(draft: Draft, op: dict) -> None:
    written = op["accumulate"]
    word = {"on_nonfinite": draft.random.choice(["drop", "window", "window"])}
    op["accumulate"] = {**(written if isinstance(written, dict) else {"steps": written}), **word}


def _pace(draft: Draft, updates: list[str], random: Random) -> None:
    """Let the window of an update gather in the steps in which another update is applied."""
    plain = [name for name in updates if not {"every", "start", "until", "dataset"} & draft.ops[name].keys()]
    windows = [name for name in plain if "accumulate" in draft.ops[name]]
    windows = [name for name in windows if "on_epoch_end" not in repr(draft.ops[name]["accumulate"])]
    if windows and random.random() < 0.6:
        chosen = random.choice(windows)
        others = [name for name in updates if name != chosen and "dataset" not in draft.ops[name]]
        if others and "all" not in [draft.ops[name].get("on_overflow") for name in updates]:
            draft.try_fields(chosen, {"every": random.choice(others)})


def _find_ordered(draft: Draft) -> bool:
    """Return whether some update happens before the gradient of another: these could not be one group."""
    updates = [name for name, op in draft.ops.items() if "update" in op]
    owned = {name: as_list(draft.ops[name].get("loss") or draft.ops[name]["gradients"]) for name in updates}
    return any("update" in draft.ops[other] for values in owned.values() for other in _find_past(draft, values))


def _find_past(draft: Draft, names: list[str]) -> set[str]:
    """Return some ops and all that comes before them."""
    found, pending = set[str](), [name for name in names if name in draft.ops]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(other for other in find_predecessors(name, draft.ops) if other in draft.ops)
    return found


# ------------------------------------------------------------ planting


def _plant(draft: Draft, updates: list[str], *, is_scaled: bool) -> None:
    """Multiply the losses behind some updates by what is not always finite."""
    fuses = [f"fuse{index}" for index in range(draft.random.randint(1, 2))]
    sources: dict[str, list[str]] = {}
    for name in updates:
        for source in _find_sources(draft, name):
            sources.setdefault(source, []).append(name)
    planted: set[str] = set()
    for source, users in sources.items():
        is_safe = all(_is_held(draft, user, is_scaled=is_scaled) for user in users)
        fuse = draft.random.choice(fuses) if is_safe else "late0"
        if draft.chance(0.65) and (is_safe or _is_plain(draft, source)) and _multiply(draft, source, fuse):
            planted.add(fuse)
    draft.inputs |= {fuse: {"shape": ["batch", draft.size]} for fuse in sorted(planted)}


def _plant_behind(draft: Draft, updates: list[str], random: Random) -> None:
    """Multiply gradient sets that some updates are given by what is not always finite."""
    for name in updates if "micro_batches" not in draft.fields else ():
        op = draft.ops[name]
        is_cut = isinstance(op.get("accumulate"), dict) and "on_epoch_end" in op["accumulate"]
        if "gradients" not in op or is_cut or "dataset" in op or random.random() < 0.4:
            continue
        given = as_list(op["gradients"])
        chosen = random.choice(given)
        draft.inputs["fuse8"] = {"shape": ["batch", draft.size]}
        draft.ops["fuse8_mean"] = {"call": "mean", "inputs": "fuse8"}
        draft.ops[f"{name}_steep"] = {"call": "mul", "inputs": [chosen, "fuse8_mean"]}
        made = [f"{name}_steep" if each == chosen else each for each in given]
        draft.ops[name] = {**op, "gradients": made[0] if len(made) == 1 else made}


def _steepen(draft: Draft, others: list[str], updates: list[str], random: Random) -> None:
    """Let slopes of penalties be infinite behind some updates, or add penalties to what has several updates."""
    spared = {model for name in others for model in as_list(draft.ops[name]["update"])}
    models = [model for name in updates for model in as_list(draft.ops[name]["update"]) if model not in spared]
    for model in dict.fromkeys(models):
        declared = draft.models[model]
        if (
            "layers" not in declared
            or "like" in repr(declared)
            or random.random() < (0.4 if models.count(model) > 1 else 0.8)
        ):
            continue
        at = {"0": 0.05, str(random.randint(1, 2)): STEEP}
        clock = {"clock": "steps"} if "name" not in declared["optimizer"] or random.random() < 0.5 else {}
        steep = {"l2": {"schedule": "piecewise", "at": at, **clock}}
        draft.models[model] = {**declared, "regularizer": random.choice([steep, {"l2": 0.05}])}


def _is_held(draft: Draft, update: str, *, is_scaled: bool) -> bool:
    """Return whether an update does nothing where its own gradients are not finite."""
    word = draft.ops[update].get("on_overflow", "group" if is_scaled else "")
    return word in ONCE_HELD


def _is_plain(draft: Draft, name: str) -> bool:
    """Return whether an update makes nothing finite of what is not, as a limit does, or a sign."""
    op = draft.ops[name]
    if "update" not in op or "clip" in op or "constraint" in op:
        return False
    models = [draft.models[model] for model in as_list(op["update"])]
    return not any("lion" in repr(one) or "constraint" in one for one in [op, *models])


def _find_sources(draft: Draft, name: str) -> list[str]:
    """Return the ops that take the gradients of an update: itself, or those of its sets."""
    op = draft.ops[name]
    if "loss" in op or "gradient" in op:
        return [name]
    inputs = op["gradients"] if "gradients" in op else op["inputs"]
    sets = [one for one in as_list(inputs) if isinstance(one, str) and one in draft.ops]
    found = (
        source
        for one in sets
        if {"gradient", "transform", "call"} & draft.ops[one].keys()
        for source in _find_sources(draft, one)
    )
    return [*dict.fromkeys(found)]


def _multiply(draft: Draft, source: str, fuse: str) -> bool:
    """Multiply the loss of a gradient by the mean of a fuse; return whether there was a place for it."""
    op = draft.ops[source]
    field = "loss" if "update" in op else "gradient"
    loss = op[field]
    if loss not in draft.losses and loss not in draft.terms and not _is_loss(draft, loss):
        return False
    if field == "gradient" and "grad_outputs" in op:
        return False
    draft.ops[f"{fuse}_mean"] = {"call": "mean", "inputs": fuse}
    draft.ops[f"{source}_planted"] = {"call": "mul", "inputs": [loss, f"{fuse}_mean"]}
    draft.ops[source] = {**op, field: f"{source}_planted"}
    return True


def _is_loss(draft: Draft, name: str) -> bool:
    op = draft.ops.get(name, {})
    return ("loss" in op and "update" not in op) or op.get("call") == "add"
