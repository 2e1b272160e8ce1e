"""Layers of sequences and the rarer norms, and calls and losses that order, move, add up or measure."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.properties.joining import find_place, join
from tests.properties.models import ACTIVATIONS

if TYPE_CHECKING:
    from tests.properties.specs import Draft

LINE: dict[str, object] = {"reshape": [2, 3]}
CALLS: tuple[dict[str, object], ...] = (
    {"call": "cumsum"},
    {"call": "roll", "args": {"shifts": 1}},
    {"call": "roll", "args": {"shifts": -1, "axis": 1}},
    {"call": "pad", "args": {"pad": [1, 1], "method": "replicate"}},
    {"call": "pad", "args": {"pad": [0, 2], "value": 0.5}},
    {"call": "norm", "args": {"axis": 1, "keepdims": True}},
)


def add_library(draft: Draft) -> None:
    """Give a model other layers, or add a term of other calls and losses to the loss of an update."""
    if draft.chance(0.5):
        change_layers(draft)
    else:
        add_measures(draft)


def change_layers(draft: Draft) -> None:
    """Let one of the first models, which are given features alone, be made of layers of sequences."""
    plain = [
        name
        for name, model in draft.models.items()
        if name in "abcde" and "layers" in model and not draft.with_buffers(name) and not draft.is_table(name)
    ]
    chosen = draft.random.choice(plain) if plain else ""
    tapped = {draft.root(op["forward"]) for op in draft.ops.values() if "outputs" in op and "forward" in op}
    if chosen not in {"", *tapped}:  # what is tapped may be no layer of the others
        draft.models[chosen]["layers"] = random_sequence_layers(draft.random, draft.size)


def normalize_weights(draft: Draft) -> None:
    """Divide the weight of the first linear layer of a model by its norm, and with it that of all models like it.

    Not of one that is called on other weights than its own, or computed again: these are refused.
    """
    called = [op for op in draft.ops.values() if {"snapshot", "checkpoint", "adapt"} & op.keys()]
    averaged = {name: op["ema"] for name, op in draft.ops.items() if "ema" in op and "into" not in op}
    names = [op.get("forward", op.get("adapt", "")) for op in called]
    refused = {draft.root(model) for name in names if (model := averaged.get(name, name)) in draft.models}
    plain = {name: model["layers"] for name, model in draft.models.items() if "layers" in model and name not in refused}
    plain = {name: of for name, of in plain.items() if len(of) > 2 and isinstance(of[0], dict) and "linear" in of[0]}
    if plain:
        chosen = draft.random.choice([*plain])
        first, *rest = plain[chosen]
        draft.models[chosen]["layers"] = [{"spectral_norm": [first]}, *rest]
        for op in draft.ops.values():
            source = op.get("ema", "")
            if draft.root(averaged.get(source, source)) == chosen and not {"buffers", "float_buffers"} & op.keys():
                words = ["copy", "average", "ignore"]  # what stands in for a model has its statistics
                op["buffers"] = draft.random.choice(words[:2] if "swap" in repr(op) else words)


def random_sequence_layers(random: Random, size: int) -> list[object]:
    """Return layers from ``size`` features to ``size`` features, with a sequence in between."""
    last: list[object] = ["flatten", {"linear": size}]
    begun: list[object] = [{"linear": 6}, LINE]
    match random.choice(["attention", "lstm", "gru", "conv1d", "norms"]):
        case "attention":
            heads = {
                "heads": random.choice([1, 3]),
                "causal": random.random() < 0.5,
                "dropout": random.choice([0.0, 0.3]),
            }
            method = random.choice(["learned", "sinusoidal"])
            return [*begun, {"positional": {"method": method}}, {"multi_head_attention": heads}, *last]
        case "lstm":
            return [*begun, {"lstm": {"size": 2, "bidirectional": random.random() < 0.5}}, *last]
        case "gru":
            return [*begun, {"gru": {"size": 2, "last": True}}, {"linear": size}]
        case "conv1d":
            return [*begun, {"conv1d": {"out": 2, "kernel": 2, "padding": 1}}, random.choice(ACTIVATIONS), *last]
        case _:
            return [{"linear": 6}, {"rms_norm": 0.1}, LINE, {"instance_norm": {"eps": 0.1}}, "tanh", *last]


def add_measures(draft: Draft) -> None:
    """Add a term to the loss of an update: a loss of a value, some after a call."""
    found = find_place(draft)
    if found is None:
        return
    update, value = found
    other = draft.random.choice(draft.values.usable())
    ops: dict[str, dict] = {}
    if draft.chance(0.5):
        ops["arranged"] = {**draft.random.choice(CALLS), "inputs": value}
        ops["measured"] = {"loss": draft.random.choice(["mse", "focal", "poisson_nll"]), "inputs": ["arranged", 0.5]}
    else:
        ops["measured"] = draft.random.choice(
            [
                {"loss": "focal", "inputs": [value, 1.0]},
                {"loss": "gaussian_nll", "inputs": [value, other, 0.5]},
                {"loss": "poisson_nll", "inputs": [value, 2.0], "args": {"full": True}},
                {"loss": "triplet_margin", "inputs": [value, "x", "y"], "args": {"margin": 5.0}},
            ]
        )
    join(draft, update, ops, "measured")
