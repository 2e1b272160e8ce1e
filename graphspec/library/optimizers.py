"""Optimizers of the language, for models and updates.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from graphspec.python.values import Number


def sgd(
    lr: Number | None = None,
    *,
    momentum: Number | None = None,
    dampening: Number | None = None,
    nesterov: bool | None = None,
    weight_decay: Number | None = None,
    momentum_form: Literal["lr_outside", "lr_inside"] | None = None,
    sparse: Literal["dense", "lazy"] | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer sgd; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    momentum: fraction of the last step kept in the next (default 0)
    dampening: fraction of the gradient kept out of the momentum (default 0)
    nesterov: momentum in the form of Nesterov (default False)
    weight_decay: weight decay, added to the gradient (default 0)
    momentum_form: whether the momentum holds gradients (lr_outside) or steps already scaled by lr (lr_inside)
        (default lr_outside)
    sparse: which rows of `sparse` tables an update steps: all (dense), or those that have a gradient (lazy) (default
        dense)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write(
        "sgd",
        {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "momentum_form": momentum_form,
            "sparse": sparse,
            "fused": fused,
        },
    )


def adam(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    sparse: Literal["dense", "lazy"] | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adam; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the gradient (default 0)
    sparse: which rows of `sparse` tables an update steps: all (dense), or those that have a gradient (lazy) (default
        dense)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write(
        "adam", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "sparse": sparse, "fused": fused}
    )


def adamw(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adamw; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, decoupled from the gradient (default 0.01)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write("adamw", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": fused})


def rmsprop(
    lr: Number | None = None,
    *,
    alpha: Number | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    momentum: Number | None = None,
    centered: bool | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer rmsprop; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.01)
    alpha: decay of the running mean of squares (default 0.99)
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the gradient (default 0)
    momentum: fraction of the last step kept in the next (default 0)
    centered: divide by the variance, not the mean square (default False)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write(
        "rmsprop",
        {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "fused": fused,
        },
    )


def adagrad(
    lr: Number | None = None,
    *,
    lr_decay: Number | None = None,
    weight_decay: Number | None = None,
    initial_accumulator_value: Number | None = None,
    eps: Number | None = None,
    sparse: Literal["dense", "lazy"] | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adagrad; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.01)
    lr_decay: lr is divided by 1 + updates * lr_decay (default 0)
    weight_decay: weight decay, added to the gradient (default 0)
    initial_accumulator_value: initial value of the sum of squares (default 0)
    eps: added to the denominator (default 1e-10)
    sparse: which rows of `sparse` tables an update steps: all (dense), or those that have a gradient (lazy) (default
        dense)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write(
        "adagrad",
        {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "sparse": sparse,
            "fused": fused,
        },
    )


def adadelta(
    lr: Number | None = None,
    *,
    rho: Number | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adadelta; options that are left out have the defaults of the spec.

    lr: learning rate (default 1)
    rho: decay of the running means (default 0.9)
    eps: added to the denominator (default 1e-06)
    weight_decay: weight decay, added to the gradient (default 0)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write("adadelta", {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "fused": fused})


def adamax(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adamax; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.002)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the gradient (default 0)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write("adamax", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": fused})


def nadam(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    momentum_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer nadam; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.002)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the gradient (default 0)
    momentum_decay: how fast Nesterov's momentum grows (default 0.004)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write(
        "nadam",
        {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "fused": fused,
        },
    )


def lion(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    weight_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer lion; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.0001)
    betas: decay of the two running means (default [0.9, 0.99])
    weight_decay: weight decay, decoupled from the gradient (default 0)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write("lion", {"lr": lr, "betas": betas, "weight_decay": weight_decay, "fused": fused})


def lamb(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer lamb; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-06)
    weight_decay: weight decay, added to the step whose length is compared (default 0)
    """
    return _write("lamb", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})


def lars(
    lr: Number | None = None,
    *,
    momentum: Number | None = None,
    weight_decay: Number | None = None,
    nesterov: bool | None = None,
    trust_coefficient: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer lars; options that are left out have the defaults of the spec.

    lr: learning rate (default 1)
    momentum: fraction of the last step kept in the next (default 0.9)
    weight_decay: weight decay, added to the step whose length is compared (default 0)
    nesterov: momentum in the form of Nesterov (default False)
    trust_coefficient: length of a step, relative to that of the weights, at lr = 1 (default 0.001)
    """
    return _write(
        "lars",
        {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "trust_coefficient": trust_coefficient,
        },
    )


def adafactor(
    lr: Number | None = None,
    *,
    beta2_decay: Number | None = None,
    eps1: Number | None = None,
    eps2: Number | None = None,
    clip_threshold: Number | None = None,
    weight_decay: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adafactor; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.01)
    beta2_decay: new squares count t to this power (default -0.8)
    eps1: least root of a mean square; none: that of its type
    eps2: least root mean square of the weights in the length of a step (default 0.001)
    clip_threshold: greatest root mean square of a step before it is scaled (default 1)
    weight_decay: weight decay, decoupled from the gradient (default 0)
    """
    return _write(
        "adafactor",
        {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps1": eps1,
            "eps2": eps2,
            "clip_threshold": clip_threshold,
            "weight_decay": weight_decay,
        },
    )


def ftrl(
    lr: Number | None = None,
    *,
    lr_power: Number | None = None,
    initial_accumulator_value: Number | None = None,
    l1: Number | None = None,
    l2: Number | None = None,
    l2_shrinkage: Number | None = None,
    beta: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer ftrl; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    lr_power: how the rate falls with the sum (default -0.5)
    initial_accumulator_value: initial value of the sum of squares (default 0.1)
    l1: pull to 0 by a constant, which makes weights exactly 0 (default 0)
    l2: pull to 0 in proportion, twice this added to the denominator (default 0)
    l2_shrinkage: weight decay, twice this times the weights added to the gradient (default 0)
    beta: added to the root of the sum of squares (default 0)
    """
    return _write(
        "ftrl",
        {
            "lr": lr,
            "lr_power": lr_power,
            "initial_accumulator_value": initial_accumulator_value,
            "l1": l1,
            "l2": l2,
            "l2_shrinkage": l2_shrinkage,
            "beta": beta,
        },
    )


def rprop(
    lr: Number | None = None,
    *,
    eta_minus: Number | None = None,
    eta_plus: Number | None = None,
    step_min: Number | None = None,
    step_max: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer rprop; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.01)
    eta_minus: factor of a step that turns back (default 0.5)
    eta_plus: factor of a step that keeps its sign (default 1.2)
    step_min: least step (default 1e-06)
    step_max: greatest step (default 50)
    """
    return _write(
        "rprop", {"lr": lr, "eta_minus": eta_minus, "eta_plus": eta_plus, "step_min": step_min, "step_max": step_max}
    )


def muon(
    lr: Number | None = None,
    *,
    momentum: Number | None = None,
    nesterov: bool | None = None,
    weight_decay: Number | None = None,
    ns_steps: int | None = None,
    eps: Number | None = None,
    adjust_lr: Literal["original", "match_rms_adamw"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer muon; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    momentum: decay of the mean of gradients (default 0.95)
    nesterov: momentum in the form of Nesterov (default True)
    weight_decay: weight decay, decoupled from the gradient (default 0.1)
    ns_steps: rounds of orthogonalization (default 5)
    eps: least length by which a matrix is divided (default 1e-07)
    adjust_lr: factor of lr by the shape: sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)) (default
        original)
    """
    return _write(
        "muon",
        {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "ns_steps": ns_steps,
            "eps": eps,
            "adjust_lr": adjust_lr,
        },
    )


def schedule_free_sgd(
    lr: Number | None = None, *, momentum: Number | None = None, weight_decay: Number | None = None
) -> Mapping[str, object]:
    """Use the optimizer schedule_free_sgd; options that are left out have the defaults of the spec.

    lr: learning rate (default 1)
    momentum: share of the average in the weights that are trained (default 0.9)
    weight_decay: weight decay, added to the gradient (default 0)
    """
    return _write("schedule_free_sgd", {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})


def schedule_free_adamw(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
) -> Mapping[str, object]:
    """Use the optimizer schedule_free_adamw; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.0025)
    betas: share of the average in the weights that are trained, and decay of the mean of squares (default [0.9,
        0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the step (default 0)
    """
    return _write("schedule_free_adamw", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})


def _write(name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    return {"name": name, **{key: each for key, each in options.items() if each is not None}}
