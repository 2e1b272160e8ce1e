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
            "fused": fused,
        },
    )


def adam(
    lr: Number | None = None,
    *,
    betas: Sequence[Number] | None = None,
    eps: Number | None = None,
    weight_decay: Number | None = None,
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adam; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.001)
    betas: decay of the two running means (default [0.9, 0.999])
    eps: added to the denominator (default 1e-08)
    weight_decay: weight decay, added to the gradient (default 0)
    fused: one fused kernel, if the device has one (default auto)
    """
    return _write("adam", {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": fused})


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
    fused: bool | Literal["auto"] | None = None,
) -> Mapping[str, object]:
    """Use the optimizer adagrad; options that are left out have the defaults of the spec.

    lr: learning rate (default 0.01)
    lr_decay: lr is divided by 1 + updates * lr_decay (default 0)
    weight_decay: weight decay, added to the gradient (default 0)
    initial_accumulator_value: initial value of the sum of squares (default 0)
    eps: added to the denominator (default 1e-10)
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


def _write(name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    return {"name": name, **{key: each for key, each in options.items() if each is not None}}
