"""Models all of whose parameters are frozen until some moment: before it, no gradient is run back to them."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.declare.graph import GraphSpec
from tests.oracle.clocks import Clocks
from tests.oracle.layers import walk
from tests.oracle.likeness import find_root
from tests.oracle.storages import Storages
from tests.oracle.terms import group_of

BIASED = ("linear", "conv2d", "conv_transpose2d")
"""Layers with a weight, and a bias unless it is said that there is none."""
SCALED = ("layer_norm", "group_norm", "batch_norm")
"""Layers with a scale and a shift of their own, BatchNorm unless it is said that there are none."""


def find_resting(spec: GraphSpec, step: int, clocks: Clocks) -> frozenset[str]:
    """Return the models that are frozen whole in a train step, from 1, but not for ever; none that share parameters."""
    tied = Storages(spec).groups
    names = {name: [*find_names(spec, name)] for name in spec.models if name not in tied}
    return frozenset(
        name for name, known in names.items() if known and all(_rests(spec, name, one, step, clocks) for one in known)
    )


def _rests(spec: GraphSpec, model: str, name: str, step: int, clocks: Clocks) -> bool:
    group = group_of(spec, model, name)
    return group is not None and group.until is not None and clocks.is_frozen(spec, model, group.until, step)


def find_names(spec: GraphSpec, model: str) -> Iterator[str]:
    """Yield the parameters of a model, by what its layers are; those of a class are not known."""
    declared = spec.models[find_root(spec, model)]
    if declared.parameter is not None:
        yield "value"
    for path, layer in walk(declared.layers or ()):
        options = layer.options
        if layer.kind == "embedding" or layer.kind in BIASED or (layer.kind in SCALED and options.get("affine", True)):
            yield f"{path}.weight"
        if (layer.kind in BIASED and options.get("bias", True)) or (
            layer.kind in SCALED and options.get("affine", True)
        ):
            yield f"{path}.bias"
