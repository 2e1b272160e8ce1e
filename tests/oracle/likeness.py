"""Which model says of which layers another is made, and whose name keys its initial weights."""

from __future__ import annotations

from graphspec.declare.graph import GraphSpec


def find_origin(spec: GraphSpec, model: str) -> str:
    """Return the model whose name keys the weights that a model begins with."""
    if model not in spec.models:
        return find_origin(spec, spec.shadows()[model].ema)
    declared = spec.models[model]
    return find_origin(spec, declared.like) if declared.like is not None and declared.init == "copy" else model


def find_root(spec: GraphSpec, model: str) -> str:
    """Return the model that says of which layers a model is made."""
    if model not in spec.models:
        return find_root(spec, spec.shadows()[model].ema)
    like = spec.models[model].like
    return model if like is None else find_root(spec, like)
