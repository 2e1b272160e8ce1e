"""Initial weights: keyed by (seed, model, parameter), of the law that every layer has."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from graphspec.graph import GraphSpec
from tests.oracle.draws import draw, make_key
from tests.oracle.layers import walk

State = Mapping[str, np.ndarray]
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The shapes of the parameters and buffers of every model, by name."""


def initial_state(spec: GraphSpec, model: str, shapes: Mapping[str, tuple[int, ...]], seed: int) -> State:
    """Return the parameters and buffers that a model begins with."""
    keyed = find_origin(spec, model)
    declared = spec.models[find_root(spec, model)]
    if declared.parameter is not None:
        laws = {"value": str(declared.parameter.init)}
    else:
        laws = {path: layer.kind for path, layer in walk(declared.layers or ())}
    return {name: _initial(name, laws, shapes, (seed, "initial", keyed, name)) for name in shapes}


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


def _initial(
    name: str, laws: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], key: tuple[object, ...]
) -> np.ndarray:
    """Return one tensor; a bias is spread as the weight of its layer."""
    shape, (path, _, part) = shapes[name], name.rpartition(".")
    law = laws[name] if name in laws else laws[path]
    match law, part:
        case "normal" | "embedding", _:
            return draw(make_key(*key), shape, "normal")
        case "uniform", _:
            return 2 * draw(make_key(*key), shape, "uniform") - 1
        case "linear" | "conv2d" | "conv_transpose2d", _:
            spread = 1 / math.sqrt(math.prod(shapes[f"{path}.weight"][1:]))
            return (2 * draw(make_key(*key), shape, "uniform") - 1) * spread
        case _, ("weight" | "running_var"):
            return np.ones(shape)
        case _, ("bias" | "running_mean" | "num_batches_tracked"):
            return np.zeros(shape)
        case _:
            return np.full(shape, {"zeros": 0.0, "ones": 1.0}.get(law) if law in ("zeros", "ones") else float(law))
