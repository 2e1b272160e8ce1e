"""Transforms of gradient sets.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from typing import Literal, Unpack

from graphspec.python.values import Fields, Number, Value, record_function


def clip_norm(
    gradients: Value,
    *,
    norm: Number,
    eps: Number | None = None,
    per: Literal["global", "parameter"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `clip_norm`: g * min(1, norm / (||g|| + eps)).

    norm: the largest norm of a set
    eps: added to the norm; torch's is 1e-6 (default 0)
    per: scope of the norm: the whole set, or the gradient of one parameter (default global)
    """
    return record_function("transform", "clip_norm", [gradients], {"norm": norm, "eps": eps, "per": per}, fields)


def clip_value(gradients: Value, *, value: Number, **fields: Unpack[Fields]) -> Value:
    """Apply `clip_value`: every element clipped to -value and value.

    value: the largest absolute value
    """
    return record_function("transform", "clip_value", [gradients], {"value": value}, fields)


def clip_agc(
    gradients: Value,
    *,
    clipping: Number | None = None,
    eps: Number | None = None,
    axis: int | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `clip_agc`: every unit's gradient norm at most clipping * max(||weights||, eps).

    clipping: the largest gradient norm, as a multiple of the norm of the weights (default 0.01)
    eps: lower bound on the norm of the weights (default 0.001)
    axis: the axis of the units: 0, or -1 for the last (default 0)
    """
    return record_function(
        "transform", "clip_agc", [gradients], {"clipping": clipping, "eps": eps, "axis": axis}, fields
    )


def scale(gradients: Value, *, factor: Number, **fields: Unpack[Fields]) -> Value:
    """Apply `scale`: factor * g.

    factor: the factor
    """
    return record_function("transform", "scale", [gradients], {"factor": factor}, fields)


def noise(gradients: Value, *, std: Number, **fields: Unpack[Fields]) -> Value:
    """Apply `noise`: g plus normally distributed numbers.

    std: their standard deviation
    """
    return record_function("transform", "noise", [gradients], {"std": std}, fields)


def centralize(gradients: Value, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `centralize`: g minus its mean over every unit, for tensors with more than one axis.

    axis: the axis of the units: 0, or -1 for the last (default 0)
    """
    return record_function("transform", "centralize", [gradients], {"axis": axis}, fields)


def normalize(
    gradients: Value, *, per: Literal["global", "parameter"] | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `normalize`: g divided by its norm.

    per: scope of the norm: the whole set, or the gradient of one parameter (default global)
    """
    return record_function("transform", "normalize", [gradients], {"per": per}, fields)


def project(a: Value, b: Value, **fields: Unpack[Fields]) -> Value:
    """Apply `project`: a - min(0, a.b) / b.b * b over the whole set."""
    return record_function("transform", "project", [a, b], {}, fields)


def pcgrad(
    a: Value, b: Value, *more: Value, order: Literal["random", "listed"] | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `pcgrad`: the sum of all sets, each projected against the others where their inner product is negative.

    order: the order in which a set is projected against the others (default random)
    """
    return record_function("transform", "pcgrad", [a, b, *more], {"order": order}, fields)
