"""Layers that map vectors to vectors: linear, embedding."""

from __future__ import annotations

from compiler.layers.initial import STANDARD_NORMAL, fan_in_uniform
from compiler.layers.resolved import LayerResult
from compiler.layers.use import LayerUse


def linear(use: LayerUse) -> LayerResult:
    """Resolve ``linear``: the last axis of [batch, features] or [batch, positions, features]."""
    use.require_floating()
    if len(use.shape) not in (2, 3):
        help = "add `flatten` before this layer" if len(use.shape) > 3 else "give the input a batch axis"
        raise use.wrong_input("[batch, features]", help)
    features, out, bias = use.require_size(-1, "features"), use.options.integer("out"), use.options.flag("bias")
    initializer = fan_in_uniform(features)
    weight = use.tensor("weight", (out, features), initializer)
    return LayerResult(
        output=(*use.shape[:-1], out),
        dtype=use.dtype,
        options={"in_features": features, "out_features": out, "bias": bias},
        parameters=(weight, use.tensor("bias", (out,), initializer)) if bias else (weight,),
    )


def embedding(use: LayerUse) -> LayerResult:
    """Resolve ``embedding``: every index of the input becomes a vector along a new last axis."""
    if use.dtype not in ("int64", "int32", None):
        help = "declare the input with dtype int64"
        raise use.problem(f"an input of dtype {use.dtype}", "indices of dtype int64 or int32 for `embedding`", help)
    count, size = use.options.integer("count"), use.options.integer("size")
    return LayerResult(
        output=(*use.shape, size),
        dtype="float32",
        options={"num_embeddings": count, "embedding_dim": size},
        parameters=(use.tensor("weight", (count, size), STANDARD_NORMAL),),
    )
