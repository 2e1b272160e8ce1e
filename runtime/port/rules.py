"""Optimizers of PyTorch as those of the language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from compiler.ir.value import Json
from runtime.port.tape import as_list

_ADAM: Mapping[str, object] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}
RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "SGD": ("sgd", {"lr": 1e-3, "momentum": 0, "dampening": 0, "nesterov": False, "weight_decay": 0}),
    "Adam": ("adam", _ADAM),
    "AdamW": ("adamw", {**_ADAM, "weight_decay": 1e-2}),
    "RMSprop": (
        "rmsprop",
        {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False},
    ),
    "Adagrad": (
        "adagrad",
        {"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10},
    ),
    "Adadelta": ("adadelta", {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0}),
    "Adamax": ("adamax", {**_ADAM, "lr": 2e-3}),
    "NAdam": ("nadam", {**_ADAM, "lr": 2e-3, "momentum_decay": 4e-3}),
}
"""By class: the name in the language, and the options with their defaults, which are the same in both."""
_OFF = ("amsgrad", "maximize", "decoupled_weight_decay")
"""Options that the language lacks; AdamW is the Adam whose decay is decoupled."""


def describe_rule(rule: str, options: Mapping[str, object]) -> tuple[Json, str]:
    """Return an optimizer in the language, and what cannot be said of it, empty if all can."""
    if rule not in RULES:
        return {"name": "sgd"}, f"the language has no optimizer {rule}"
    name, defaults = RULES[rule]
    found: dict[str, Json] = {"name": name}
    for key, default in defaults.items():
        given = options.get(key, default)
        if given != default:
            found[key] = _as_json(given)
    lacking = [key for key in _OFF if options.get(key) and not (rule == "AdamW" and key == "decoupled_weight_decay")]
    return (found if len(found) > 1 else name), f"{rule} with {lacking[0]}" if lacking else ""


def _as_json(value: object) -> Json:
    match value:
        case bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_as_json(each) for each in as_list(cast("object", value))]
        case _:
            return str(value)
