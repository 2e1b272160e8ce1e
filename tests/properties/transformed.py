"""Random transforms of gradients on their way to an update, and clips by weights or per parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.causality import is_circular

if TYPE_CHECKING:
    from tests.properties.specs import Draft

CLIPS: list[dict] = [{"agc": 0.05}, {"agc": 0.3, "eps": 0.1}, {"norm": 0.2, "per": "parameter"}]
SINGLE: list[dict] = [
    {"transform": "clip_agc", "args": {"clipping": 0.1}},
    {"transform": "clip_agc", "args": {"clipping": 0.3, "eps": 0.5, "axis": -1}},
    {"transform": "scale", "args": {"factor": -0.5}},
    {"transform": "scale", "args": {"factor": 1.5}},
    {"transform": "noise", "args": {"std": 0.1}},
    {"transform": "centralize"},
    {"transform": "centralize", "args": {"axis": -1}},
    {"transform": "normalize"},
    {"transform": "clip_norm", "args": {"norm": 0.2, "eps": 1e-3, "per": "parameter"}},
]
"""Not normalize per parameter: it makes gradients that are zero up to rounding a million times longer."""
JOINT: list[dict] = [
    {"transform": "pcgrad"},
    {"transform": "pcgrad", "args": {"order": "listed"}},
    {"transform": "project"},
    {"call": "sub"},
]


def add_transforms(draft: Draft) -> None:
    """Let an update take its gradients by way of transforms, or clip them in another way."""
    updates = [name for name, op in draft.ops.items() if "update" in op and "loss" in op]
    if not updates:
        return
    name = draft.random.choice(updates)
    if draft.chance(0.3):
        draft.ops[name]["clip"] = draft.random.choice(CLIPS)
        return
    before = dict(draft.ops)
    _take_way(draft, name)
    if is_circular(draft.ops):  # a further loss of what comes after the update
        draft.ops = before


def _take_way(draft: Draft, name: str) -> None:
    """Let an update take gradients that are made of those of its loss."""
    op = {key: value for key, value in draft.ops[name].items() if key not in ("loss", "clip")}
    models, sets = _take_gradients(draft, draft.ops[name]["loss"], op["update"])
    if len(sets) > 1:
        sets = [_join(draft, sets)]
    for _ in range(draft.random.randint(1, 3)):
        sets = [_change(draft, sets[0], models)]
    draft.ops[name] = {**op, "gradients": sets[0]}


def _take_gradients(draft: Draft, loss: str, models: list[str]) -> tuple[list[str], list[str]]:
    """Add gradients of a loss, and of further ones that reach the same models; return the models and the sets."""
    more = sorted((draft.losses.get(loss, frozenset()) & draft.models.keys()) - set(models) - draft.slow.keys())
    models = [*models, *more[:1]] if draft.chance(0.5) else models
    values = [name for name in draft.values.usable() if set(models) <= draft.values.reach[name]]
    losses = [loss]
    for value in draft.random.sample(values, min(len(values), draft.random.randint(0, 2))):
        losses.append(draft.new("further"))
        draft.ops[losses[-1]] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": [value, -0.5]}
    return models, [_add(draft, {"gradient": one, "wrt": models}) for one in losses]


def _add(draft: Draft, op: dict) -> str:
    name = draft.new("set")
    draft.ops[name] = op
    return name


def _join(draft: Draft, sets: list[str]) -> str:
    """Add what makes one set of several."""
    found = dict(draft.random.choice(JOINT))
    return _add(draft, {**found, "inputs": sets if found.get("transform") == "pcgrad" else sets[:2]})


def _change(draft: Draft, given: str, models: list[str]) -> str:
    """Add a transform of a set; one that looks at weights comes after some write now and then."""
    plain = not any("class" in draft.models[model] for model in models)
    found = draft.random.choice([one for one in SINGLE if plain or one["transform"] != "noise"])
    name = _add(draft, {**found, "inputs": given})
    writes = [other for other, op in draft.ops.items() if {"update", "ema", "copy"} & op.keys()]
    if found["transform"] == "clip_agc" and writes and draft.chance(0.3):
        draft.try_fields(name, {"after": [draft.random.choice(writes)]})
    return name
