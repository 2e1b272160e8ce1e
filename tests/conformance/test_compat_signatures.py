"""The defaults under `compat` are those of the signatures of Keras and PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import pytest
import torch

from graphspec.declare.compat import PROFILES, Compat, adapt_options, find_defaults
from graphspec.declare.layers import LAYERS
from graphspec.declare.library import LOSSES
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import Option, OptionDefault

Values = Mapping[str, object]
Row = tuple[str, str, type[Any], Mapping[str, Callable[[Values], object]]]


def read(name: str) -> Callable[[Values], object]:
    """Return what reads an argument of one name."""
    return lambda its: its[name]


NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "adagrad": "Adagrad"}
NAMES |= {"adadelta": "Adadelta", "adamax": "Adamax", "nadam": "Nadam", "lion": "Lion", "lamb": "Lamb", "ftrl": "Ftrl"}
NAMES |= {"adafactor": "Adafactor", "muon": "Muon", "schedule_free_adamw": "ScheduleFreeAdamW"}
TORCH_NAMES = {name: NAMES[name] for name in ("sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "adamax")}
TORCH_NAMES |= {"nadam": "NAdam", "adafactor": "Adafactor", "rprop": "Rprop", "muon": "Muon"}
KERAS_OPTIONS: Mapping[str, Callable[[Values], object]] = {
    "lr": lambda its: its["learning_rate"],
    "betas": lambda its: (its["beta_1"], its["beta_2"]),
    "eps": lambda its: its["epsilon"],
    "weight_decay": lambda its: its["weight_decay"] or 0.0,
    "alpha": lambda its: its["rho"],
    **{name: lambda its, name=name: its[name] for name in ("rho", "momentum", "nesterov", "centered")},
    "initial_accumulator_value": lambda its: its["initial_accumulator_value"],
    "beta2_decay": lambda its: its["beta_2_decay"],
    "eps1": lambda its: its["epsilon_1"],
    "eps2": lambda its: its["epsilon_2"],
    "lr_power": lambda its: its["learning_rate_power"],
    "l1": lambda its: its["l1_regularization_strength"],
    "l2": lambda its: its["l2_regularization_strength"],
    "l2_shrinkage": lambda its: its["l2_shrinkage_regularization_strength"],
    "adjust_lr": lambda its: {0.2: "match_rms_adamw"}[its["rms_rate"]],
    **{name: lambda its, name=name: its[name] for name in ("clip_threshold", "beta", "ns_steps")},
}
TORCH_OPTIONS: Mapping[str, Callable[[Values], object]] = {
    "eps1": lambda its: its["eps"][0],
    "eps2": lambda its: its["eps"][1],
    "clip_threshold": lambda its: its["d"],
    "eta_minus": lambda its: its["etas"][0],
    "eta_plus": lambda its: its["etas"][1],
    "step_min": lambda its: its["step_sizes"][0],
    "step_max": lambda its: its["step_sizes"][1],
    "adjust_lr": lambda its: {None: "original"}[its["adjust_lr_fn"]],
}
NOT_OF_KERAS = {"dampening", "momentum_form", "momentum_decay", "lr_decay", "fused", "sparse"}
"""What Keras has no option for: the forms are compared by what they do."""


EPSILON, BIAS = {"eps": read("epsilon")}, {"bias": read("use_bias")}
STRIDE = {"stride": lambda its: its["strides"][0], "padding": lambda its: {"valid": 0}[its["padding"]]}
DILATION = {"dilation": lambda its: its["dilation_rate"][0], "groups": read("groups")}
POOL = {"stride": read("strides"), "padding": STRIDE["padding"]}
LABELS = {"axis": read("axis"), "label_smoothing": read("label_smoothing")}
KERAS: tuple[Row, ...] = (
    ("layer", "linear", keras.layers.Dense, BIAS),
    ("layer", "conv2d", keras.layers.Conv2D, {**BIAS, **STRIDE, **DILATION}),
    ("layer", "conv_transpose2d", keras.layers.Conv2DTranspose, {**BIAS, **STRIDE}),
    ("layer", "batch_norm", keras.layers.BatchNormalization,
     {**EPSILON, "momentum": lambda its: round(1 - its["momentum"], 9), "affine": read("center")}),
    ("layer", "batch_norm", keras.layers.BatchNormalization, {"affine": read("scale")}),
    ("layer", "layer_norm", keras.layers.LayerNormalization, EPSILON),
    ("layer", "group_norm", keras.layers.GroupNormalization, EPSILON),
    ("layer", "leaky_relu", keras.layers.LeakyReLU, {"slope": read("negative_slope")}),
    ("layer", "elu", keras.layers.ELU, {"alpha": read("alpha")}),
    ("layer", "softmax", keras.layers.Softmax, {"axis": read("axis")}),
    ("layer", "upsample", keras.layers.UpSampling2D, {"mode": read("interpolation")}),
    ("layer", "avg_pool", keras.layers.AveragePooling2D, POOL),
    ("layer", "max_pool", keras.layers.MaxPooling2D, POOL),
    ("loss", "huber", keras.losses.Huber, {"delta": read("delta")}),
    ("loss", "cross_entropy", keras.losses.CategoricalCrossentropy, LABELS),
    ("loss", "cross_entropy", keras.losses.SparseCategoricalCrossentropy, {"axis": read("axis")}),
)  # fmt: skip
WINDOW = {name: read(name) for name in ("stride", "padding", "dilation", "groups", "bias")}
TORCH: tuple[Row, ...] = (
    ("layer", "linear", torch.nn.Linear, {"bias": read("bias")}),
    ("layer", "conv2d", torch.nn.Conv2d, WINDOW),
    ("layer", "batch_norm", torch.nn.BatchNorm1d, {name: read(name) for name in ("eps", "momentum", "affine")}),
    ("layer", "layer_norm", torch.nn.LayerNorm, {"eps": read("eps")}),
    ("layer", "group_norm", torch.nn.GroupNorm, {"eps": read("eps")}),
    ("layer", "dropout", torch.nn.Dropout, {"p": read("p")}),
    ("layer", "leaky_relu", torch.nn.LeakyReLU, {"slope": read("negative_slope")}),
    ("layer", "elu", torch.nn.ELU, {"alpha": read("alpha")}),
    ("layer", "upsample", torch.nn.Upsample, {"mode": read("mode")}),
    ("layer", "max_pool", torch.nn.MaxPool2d, {"stride": read("stride"), "padding": read("padding")}),
    ("loss", "huber", torch.nn.HuberLoss, {"delta": read("delta")}),
    ("loss", "cross_entropy", torch.nn.CrossEntropyLoss, {"label_smoothing": read("label_smoothing")}),
    *(("optimizer", name, getattr(torch.optim, its),
       {option.name: TORCH_OPTIONS.get(option.name, read(option.name))
        for option in OPTIMIZERS[name] if option.name not in ("fused", "momentum_form", "sparse")})
      for name, its in TORCH_NAMES.items()),
)  # fmt: skip


def signature(kind: type[Any]) -> Values:
    """Return the defaults of a class, as it declares them."""
    return {name: each.default for name, each in inspect.signature(kind.__init__).parameters.items()}


def defaults(compat: Compat, place: str, name: str) -> Mapping[str, OptionDefault]:
    """Return the defaults of a thing under a profile."""
    tables: Mapping[str, Mapping[str, tuple[Option, ...]]] = {
        "optimizer": OPTIMIZERS,
        "layer": LAYERS,
        "loss": {key: value.options for key, value in LOSSES.items()},
    }
    options = adapt_options(tables[place][name], find_defaults(compat, place, name))
    return {option.name: option.default for option in options}


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_has_the_defaults_of_keras(name: str) -> None:
    its, ours = signature(getattr(keras.optimizers, NAMES[name])), defaults("tf_keras", "optimizer", name)
    compared = ours.keys() - NOT_OF_KERAS - ({"eps"} if name == "muon" else set())  # its eps is Adam's
    assert {option: ours[option] for option in compared} == {option: KERAS_OPTIONS[option](its) for option in compared}


@pytest.mark.parametrize(
    ("compat", "row"),
    [*(("tf_keras", row) for row in KERAS), *(("torch", row) for row in TORCH)],
    ids=lambda value: value if isinstance(value, str) else value[2].__name__,
)
def test_layers_losses_and_rules_have_the_defaults_of_their_classes(compat: Compat, row: Row) -> None:
    place, name, kind, options = row
    its, ours = signature(kind), defaults(compat, place, name)
    assert {option: ours[option] for option in options} == {option: of(its) for option, of in options.items()}


def test_every_default_of_a_profile_is_compared() -> None:
    compared = {(place, name, option) for place, name, _, options in KERAS for option in options}
    for place, named in PROFILES["tf_keras"].items():
        for name, changed in named.items():
            listed = {(place, name, option) for option in changed}
            assert place == "optimizer" or listed <= compared
