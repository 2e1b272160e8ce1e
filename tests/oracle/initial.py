"""Initial weights: keyed by (seed, model, parameter), of the law that every layer has."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from graphspec.declare.graph import GraphSpec
from tests.oracle.draws import draw, make_key
from tests.oracle.layers import walk
from tests.oracle.likeness import find_origin, find_root
from tests.oracle.storages import Storages

State = Mapping[str, np.ndarray]
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The shapes of the parameters and buffers of every model, by name."""


def initial_state(spec: GraphSpec, model: str, shapes: Mapping[str, tuple[int, ...]], seed: int) -> State:
    """Return the parameters and buffers that a model begins with."""
    keyed, storages = find_origin(spec, model), Storages(spec)
    declared = spec.models[find_root(spec, model)]
    if declared.class_ is not None:
        places = {name: storages.place(keyed, name) for name in shapes}
        return {name: _even(shapes[name], (seed, "initial", *place)) for name, place in places.items()}
    if declared.parameter is not None:
        laws = {"value": str(declared.parameter.init)}
    else:
        laws = {path: layer.kind for path, layer in walk(declared.layers or ())}
    return {name: _initial(name, laws, shapes, (seed, "initial", keyed, name)) for name in shapes}


def _even(shape: tuple[int, ...], key: tuple[object, ...]) -> np.ndarray:
    """Return numbers from -1/2 to 1/2: with these, tests fill the parameters of a class before they give it."""
    return draw(make_key(*key), shape, "uniform") - 0.5


def _initial(
    name: str, laws: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], key: tuple[object, ...]
) -> np.ndarray:
    """Return one tensor; a bias is spread as the weight of its layer."""
    shape, (path, _, part) = shapes[name], name.replace("out_proj.", "out_proj_").rpartition(".")
    law = laws[name] if name in laws else laws[path]
    match law, part:
        case "lstm" | "gru", _:
            spread = 1 / math.sqrt(shapes[f"{path}.weight_hh_l0"][1])
            return (2 * draw(make_key(*key), shape, "uniform") - 1) * spread
        case "multi_head_attention", ("in_proj_weight" | "out_proj_weight"):
            spread = math.sqrt(6 / sum(shape)) if part == "in_proj_weight" else 1 / math.sqrt(shape[1])
            return (2 * draw(make_key(*key), shape, "uniform") - 1) * spread
        case "multi_head_attention", _:
            return np.zeros(shape)
        case ("normal" | "embedding" | "positional", _) | ("spectral_norm", "u"):
            return draw(make_key(*key), shape, "normal")
        case "uniform", _:
            return 2 * draw(make_key(*key), shape, "uniform") - 1
        case "linear" | "conv1d" | "conv2d" | "conv_transpose2d", _:
            spread = 1 / math.sqrt(math.prod(shapes[f"{path}.weight"][1:]))
            return (2 * draw(make_key(*key), shape, "uniform") - 1) * spread
        case _, ("weight" | "running_var"):
            return np.ones(shape)
        case _, ("bias" | "running_mean" | "num_batches_tracked"):
            return np.zeros(shape)
        case _:
            return np.full(shape, {"zeros": 0.0, "ones": 1.0}.get(law) if law in ("zeros", "ones") else float(law))
