"""Resolve the layers of a model against the shape of its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from compiler.layers.activation import activation, dropout, elu, leaky_relu, softmax
from compiler.layers.convolution import conv2d, conv_transpose2d
from compiler.layers.dense import embedding, linear
from compiler.layers.normalization import batch_norm, group_norm, layer_norm
from compiler.layers.pooling import global_avg_pool, pool, upsample
from compiler.layers.resolved import LayerResult, LayerTraits, ResolvedLayers
from compiler.layers.shaping import flatten, identity, reshape
from compiler.layers.use import LayerUse
from compiler.operands import Shape
from compiler.program import LayerDecl
from compiler.shapes.dimension import is_surely_unequal
from compiler.shapes.options import Options
from compiler.shapes.problem import Place
from compiler.shapes.tensor_type import format_shape
from graphspec.layers import LAYERS, Layer
from graphspec.options import find_defaults


def resolve_layers(layers: tuple[Layer, ...], inputs: Shape, dtype: str | None = "float32") -> ResolvedLayers:
    """Return every layer with all sizes known, given the shape and dtype of the model's input.

    Free dimensions pass through where no parameter needs their size. Raises :class:`ShapeProblem` at the first layer
    whose input does not fit, with its path below the list: ``(2,)``, ``(2, "residual", 0)``.
    """
    return _chain(layers, inputs, dtype, (), "")


def residual(use: LayerUse) -> LayerResult:
    """Resolve ``residual``: its input plus the result of its inner layers, which must keep the shape."""
    place = (*use.place, "residual")
    branch = _chain(use.layer.layers, use.shape, use.dtype, place, f"{use.path}.")
    if len(branch.output) != len(use.shape) or any(map(is_surely_unequal, branch.output, use.shape)):
        found = f"inner layers that turn {format_shape(use.shape)} into {format_shape(branch.output)}"
        help = "keep the shape inside (a 3x3 convolution does with `padding: 1`), or take `residual` away"
        raise use.problem(found, "inner layers of `residual` that keep the shape of their input", help)
    return LayerResult(
        output=use.shape,
        dtype=use.dtype,
        parameters=branch.parameters,
        buffers=branch.buffers,
        traits=branch.traits,
        layers=branch.layers,
    )


RULES: Mapping[str, Callable[[LayerUse], LayerResult]] = {
    "linear": linear,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "embedding": embedding,
    "dropout": dropout,
    "flatten": flatten,
    "reshape": reshape,
    "avg_pool": pool,
    "max_pool": pool,
    "global_avg_pool": global_avg_pool,
    "upsample": upsample,
    "residual": residual,
    "relu": activation,
    "leaky_relu": leaky_relu,
    "gelu": activation,
    "silu": activation,
    "elu": elu,
    "tanh": activation,
    "sigmoid": activation,
    "softmax": softmax,
    "identity": identity,
}
"""The rule of every layer; a key of :data:`graphspec.layers.LAYERS` each."""


def _chain(layers: tuple[Layer, ...], inputs: Shape, dtype: str | None, place: Place, prefix: str) -> ResolvedLayers:
    """Resolve layers that follow each other; ``prefix`` comes before their index in parameter names."""
    declarations, results = list[LayerDecl](), [LayerResult(output=inputs, dtype=dtype)]
    for index, layer in enumerate(layers):
        path = f"{prefix}{index}"
        result = _resolve(layer, results[-1], (*place, index), path)
        results.append(result)
        declarations.append(LayerDecl(kind=layer.kind, path=path, options=result.options, layers=result.layers))
    return ResolvedLayers(
        layers=tuple(declarations),
        output=results[-1].output,
        dtype=results[-1].dtype,
        parameters=tuple(tensor for result in results for tensor in result.parameters),
        buffers=tuple(tensor for result in results for tensor in result.buffers),
        traits=reduce(LayerTraits.__or__, (result.traits for result in results)),
    )


def _resolve(layer: Layer, before: LayerResult, place: Place, path: str) -> LayerResult:
    """Resolve one layer after what came before it."""
    options = Options(values=layer.options, place=place, defaults=find_defaults(LAYERS[layer.kind]))
    use = LayerUse(layer=layer, options=options, place=place, path=path, shape=before.output, dtype=before.dtype)
    return RULES[layer.kind](use)
