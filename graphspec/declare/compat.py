"""Defaults of other libraries: what options that a spec leaves out are under `compat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from graphspec.declare.layers import Layer
from graphspec.declare.library import Family
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import LossOp, Op, TransformOp, UpdateOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.options import Option

Compat: TypeAlias = Literal["tf_keras", "torch"]
Place: TypeAlias = Family | Literal["optimizer", "layer", "clip"]
Plain: TypeAlias = bool | int | float | str
Defaults: TypeAlias = Mapping[str, Plain]

_KERAS_EPS = 1e-7

PROFILES: Mapping[Compat, Mapping[Place, Mapping[str, Defaults]]] = {
    "tf_keras": {
        "optimizer": {
            "sgd": {"lr": 0.01, "momentum_form": "lr_inside"},
            "adam": {"eps": _KERAS_EPS},
            "adamw": {"eps": _KERAS_EPS, "weight_decay": 0.004},
            "rmsprop": {"lr": 0.001, "alpha": 0.9, "eps": _KERAS_EPS},
            "adagrad": {"lr": 0.001, "initial_accumulator_value": 0.1, "eps": _KERAS_EPS},
            "adadelta": {"lr": 0.001, "rho": 0.95, "eps": _KERAS_EPS},
            "adamax": {"lr": 0.001, "eps": _KERAS_EPS},
            # Keras' rule is Dozat's without this option: 0.96 to the power t.
            "nadam": {"lr": 0.001, "eps": _KERAS_EPS, "momentum_decay": 1.0},
            "lion": {"lr": 0.001},
            "lamb": {"eps": _KERAS_EPS},
            "adafactor": {"lr": 0.001, "eps1": 1e-30},
            "muon": {"weight_decay": 0.004, "adjust_lr": "match_rms_adamw"},
        },
        "layer": {
            "batch_norm": {"eps": 0.001, "momentum": 0.01},  # the share of the new batch: 1 - 0.99
            "layer_norm": {"eps": 0.001},
            "group_norm": {"eps": 0.001},
            "leaky_relu": {"slope": 0.3},
        },
        "loss": {"cross_entropy": {"axis": -1}},
    },
    "torch": {
        "transform": {"clip_norm": {"eps": 1e-6}},
        "clip": {"norm": {"eps": 1e-6}},
    },
}
"""The defaults of each library that differ from those of the language (which mostly are PyTorch's): Keras 3.15, and
PyTorch 2.13. An option of which nothing stands here has the same default, or none, there."""


def find_defaults(compat: Compat | None, place: Place, name: str) -> Defaults:
    """Return the defaults of a rule, a layer or a function that are others under a profile."""
    return {} if compat is None else PROFILES[compat].get(place, {}).get(name, {})


def adapt_options(options: tuple[Option, ...], defaults: Defaults) -> tuple[Option, ...]:
    """Return a table of options with other defaults, for messages."""
    if not defaults:
        return options
    return tuple(replace(each, default=defaults.get(each.name, each.default)) for each in options)


def fill_model(model: ModelSpec, compat: Compat | None) -> ModelSpec:
    """Return a model with the defaults of a profile in its layers, and with a whole optimizer."""
    filled: dict[str, object] = {}
    if model.layers is not None and compat is not None:
        filled["layers"] = tuple(_fill_layer(layer, compat) for layer in model.layers)
    if model.optimizer is not None:
        filled["optimizer"] = _fill_optimizer(model.optimizer, compat)
    if any(group.optimizer is not None for group in model.groups):
        filled["groups"] = tuple(
            group
            if group.optimizer is None
            else group.model_copy(update={"optimizer": _fill_optimizer(group.optimizer, compat)})
            for group in model.groups
        )
    return model.model_copy(update=filled) if filled else model


def fill_op(op: Op, compat: Compat | None) -> Op:
    """Return an op with the defaults of a profile in its arguments and its clip, and with a whole optimizer."""
    match op:
        case LossOp(loss=function) | TransformOp(transform=function) if function.is_builtin:
            defaults = find_defaults(compat, op.kind, function.given[0])
            return op.model_copy(update={"args": {**defaults, **op.args}}) if defaults else op
        case UpdateOp():
            filled: dict[str, object] = {}
            if op.optimizer is not None:
                filled["optimizer"] = _fill_optimizer(op.optimizer, compat)
            if op.clip is not None and op.clip.eps is None:
                filled["clip"] = op.clip.model_copy(update={**find_defaults(compat, "clip", op.clip.kind)})
            return op.model_copy(update=filled) if filled else op
        case _:
            return op


def _fill_layer(layer: Layer, compat: Compat) -> Layer:
    options = {**find_defaults(compat, "layer", layer.kind), **layer.options}
    inner = tuple(_fill_layer(each, compat) for each in layer.layers)
    return layer.model_copy(update={"options": options, "layers": inner})


def _fill_optimizer(optimizer: OptimizerSpec, compat: Compat | None) -> OptimizerSpec:
    """Return an optimizer with the defaults of a profile, and with what its schedules leave out."""
    if optimizer.epochs:
        phases = {epoch: _fill_optimizer(each, compat) for epoch, each in optimizer.epochs.items()}
        return optimizer.model_copy(update={"epochs": phases})
    defaults = find_defaults(compat, "optimizer", optimizer.name or "")
    optimizer = optimizer.close(defaults)
    if not defaults:
        return optimizer
    if not optimizer.options.get("momentum") or optimizer.options.get("dampening"):
        # Without a momentum both forms are one, and only lr_outside keeps nothing for it; only it has a dampening.
        defaults = {name: value for name, value in defaults.items() if name != "momentum_form"}
    return optimizer.model_copy(update={"options": {**defaults, **optimizer.options}})
