"""Resolve the layers of a model against the shape of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.program import LayerDecl, TensorDecl
from compiler.ir.value import Plain, Shape
from compiler.types import sequence_layers
from compiler.types.arrangement import fill_reshape, transposed_size, window_count
from compiler.types.call import Options
from compiler.types.dimension import Place, ShapeProblem, format_shape, is_surely_unequal, multiply, scale
from compiler.types.layer import (
    ONES,
    STANDARD_NORMAL,
    ZEROS,
    LayerResult,
    LayerTraits,
    LayerUse,
    fan_in_uniform,
    require_room,
    scale_and_offset,
    weight_and_bias,
)
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.options import find_defaults


class ResolvedLayers(Struct, frozen=True, kw_only=True):
    """The layers of a model in order, the type of its result, and all its parameters and buffers in layer order."""

    layers: tuple[LayerDecl, ...]
    output: Shape
    dtype: str | None
    parameters: tuple[TensorDecl, ...]
    buffers: tuple[TensorDecl, ...]
    traits: LayerTraits


def activation(use: LayerUse) -> LayerResult:
    """Resolve an activation without options: relu, gelu, silu, tanh, sigmoid."""
    use.require_floating()
    return use.same()


def leaky_relu(use: LayerUse) -> LayerResult:
    """Resolve ``leaky_relu``."""
    use.require_floating()
    return use.same(options={"negative_slope": use.options.number("slope")})


def elu(use: LayerUse) -> LayerResult:
    """Resolve ``elu``."""
    use.require_floating()
    return use.same(options={"alpha": use.options.number("alpha")})


def softmax(use: LayerUse) -> LayerResult:
    """Resolve ``softmax``; along axis 0 it makes the samples of a batch depend on each other."""
    use.require_floating()
    axis, rank = use.options.integer("axis"), len(use.shape)
    if not -rank <= axis < rank:
        found = f"`axis: {axis}` for an input of shape {format_shape(use.shape)}"
        raise use.problem(found, f"an axis from {-rank} to {rank - 1} for `softmax`")
    return use.same(options={"dim": axis}, traits=LayerTraits(batch_coupled=axis % rank == 0))


def dropout(use: LayerUse) -> LayerResult:
    """Resolve ``dropout``: in train mode elements become 0 with probability ``p``, the others grow by 1/(1-p)."""
    use.require_floating()
    return use.same(options={"p": use.options.number("p")}, traits=LayerTraits(rng=True))


def conv2d(use: LayerUse) -> LayerResult:
    """Resolve ``conv2d``; weight [out, in/groups, height, width]."""
    batch, _, height, width = use.require_image()
    channels, out, groups = use.require_size(1, "channels"), use.options.integer("out"), use.options.integer("groups")
    for count, what in ((channels, "channels in"), (out, "channels out")):
        if count % groups:
            raise use.problem(f"{count} {what}, `groups: {groups}`", "a number of channels divisible by `groups`")
    kernel, stride, padding, dilation = (use.options.pair(name) for name in ("kernel", "stride", "padding", "dilation"))
    spatial = [
        window_count(size, kernel=k, stride=s, padding=p, dilation=d)
        for size, k, s, p, d in zip((height, width), kernel, stride, padding, dilation, strict=True)
    ]
    options = {"in_channels": channels, "out_channels": out, "kernel_size": kernel, "stride": stride}
    bias = use.options.flag("bias")
    return LayerResult(
        output=(batch, out, *require_room(use, spatial)),
        dtype=use.dtype,
        options={**options, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias},
        parameters=weight_and_bias(use, (out, channels // groups, *kernel), channels // groups, out),
    )


def conv_transpose2d(use: LayerUse) -> LayerResult:
    """Resolve ``conv_transpose2d``; weight [in, out, height, width]; PyTorch takes fan_in from the second axis."""
    batch, _, height, width = use.require_image()
    channels, out = use.require_size(1, "channels"), use.options.integer("out")
    kernel, stride, padding, extra = (
        use.options.pair(name) for name in ("kernel", "stride", "padding", "output_padding")
    )
    if any(e >= s for e, s in zip(extra, stride, strict=True)):  # no input size would explain it
        found = f"`output_padding: {list(extra)}` with `stride: {list(stride)}`"
        raise use.problem(found, "`output_padding` less than `stride`", "lower `output_padding`")
    spatial = [
        transposed_size(size, kernel=k, stride=s, padding=p, extra=e)
        for size, k, s, p, e in zip((height, width), kernel, stride, padding, extra, strict=True)
    ]
    options = {"in_channels": channels, "out_channels": out, "kernel_size": kernel, "stride": stride}
    last = {"output_padding": extra, "dilation": (1, 1), "groups": 1, "bias": use.options.flag("bias")}
    return LayerResult(
        output=(batch, out, *require_room(use, spatial)),
        dtype=use.dtype,
        options={**options, "padding": padding, **last},
        parameters=weight_and_bias(use, (channels, out, *kernel), out, out),
    )


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
    count, size, sparse = use.options.integer("count"), use.options.integer("size"), use.options.flag("sparse")
    weight = use.tensor("weight", (count, size), STANDARD_NORMAL)
    return LayerResult(
        output=(*use.shape, size),
        dtype="float32",
        options={"num_embeddings": count, "embedding_dim": size, "sparse": sparse},
        parameters=(replace(weight, sparse=sparse),),
    )


def batch_norm(use: LayerUse) -> LayerResult:
    """Resolve ``batch_norm`` over axis 1 of [batch, features], [batch, channels, length] or images."""
    use.require_floating()
    if len(use.shape) not in (2, 3, 4):
        raise use.wrong_input("[batch, channels, ...] with two to four axes", "use `flatten` or `reshape` before it")
    features, affine = use.require_size(1, "channels"), use.options.flag("affine")
    options = {"eps": use.options.number("eps"), "momentum": use.options.number("momentum"), "affine": affine}
    if use.options.flag("sync"):
        options["sync"] = True
    statistics = (
        use.tensor("running_mean", (features,), ZEROS),
        use.tensor("running_var", (features,), ONES),
        use.tensor("num_batches_tracked", (), ZEROS, dtype="int64"),
    )
    return use.same(
        options={"num_features": features, **options, "rank": len(use.shape)},
        parameters=scale_and_offset(use, features) if affine else (),
        buffers=statistics,
        traits=LayerTraits(buffers=True, batch_coupled=True),
    )


def instance_norm(use: LayerUse) -> LayerResult:
    """Resolve ``instance_norm`` of every channel of every sample, over all axes after axis 1."""
    use.require_floating()
    if len(use.shape) not in (3, 4):
        raise use.wrong_input(
            "[batch, channels, length] or [batch, channels, height, width]", "use `reshape` before it"
        )
    if multiply(use.shape[2:]) == 1:
        help = "use `layer_norm` or `group_norm`, or fewer layers that shrink the image"
        raise use.wrong_input("more than one element in each channel", help)
    channels, affine = use.require_size(1, "channels"), use.options.flag("affine")
    return use.same(
        options={"num_features": channels, "eps": use.options.number("eps"), "affine": affine, "rank": len(use.shape)},
        parameters=scale_and_offset(use, channels) if affine else (),
    )


def layer_norm(use: LayerUse) -> LayerResult:
    """Resolve ``layer_norm`` over the last axis."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, ..., features]", "give the input a batch axis")
    features = use.require_size(-1, "features")
    options = {"normalized_shape": features, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=scale_and_offset(use, features))


def rms_norm(use: LayerUse) -> LayerResult:
    """Resolve ``rms_norm`` over the last axis."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, ..., features]", "give the input a batch axis")
    features = use.require_size(-1, "features")
    options = {"normalized_shape": features, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=(use.tensor("weight", (features,), ONES),))


def group_norm(use: LayerUse) -> LayerResult:
    """Resolve ``group_norm`` over groups of axis 1 and all axes after it."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, channels, ...]", "give the input a batch axis")
    channels, groups = use.require_size(1, "channels"), use.options.integer("groups")
    if channels % groups:
        help = f"choose `groups` among the divisors of {channels}"
        raise use.problem(f"{channels} channels, `groups: {groups}`", "channels divisible by `groups`", help)
    options = {"num_groups": groups, "num_channels": channels, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=scale_and_offset(use, channels))


def pool(use: LayerUse) -> LayerResult:
    """Resolve ``avg_pool`` and ``max_pool``: windows that by default do not overlap; the rest at the end is dropped."""
    batch, channels, height, width = use.require_image()
    kernel = use.options.pair("kernel")
    stride = use.options.pair("stride") if use.options.has("stride") else kernel
    padding = use.options.pair("padding")
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        found = f"`padding: {list(padding)}` with `kernel: {list(kernel)}`"
        raise use.problem(found, "`padding` of at most half the kernel", "a window must not lie in the padding alone")
    spatial = [
        window_count(size, kernel=k, stride=s, padding=p)
        for size, k, s, p in zip((height, width), kernel, stride, padding, strict=True)
    ]
    return LayerResult(
        output=(batch, channels, *require_room(use, spatial)),
        dtype=use.dtype,
        options={"kernel_size": kernel, "stride": stride, "padding": padding},
    )


def global_avg_pool(use: LayerUse) -> LayerResult:
    """Resolve ``global_avg_pool``: the mean over height and width, [batch, channels]."""
    batch, channels, _, _ = use.require_image()
    return LayerResult(output=(batch, channels), dtype=use.dtype)


def upsample(use: LayerUse) -> LayerResult:
    """Resolve ``upsample``: height and width times ``factor``."""
    batch, channels, height, width = use.require_image()
    factor, mode = use.options.integer("factor"), use.options.word("mode")
    return LayerResult(
        output=(batch, channels, scale(height, factor), scale(width, factor)),
        dtype=use.dtype,
        options={"scale_factor": factor, "mode": mode},
    )


def identity(use: LayerUse) -> LayerResult:
    """Resolve ``identity``."""
    return use.same()


def flatten(use: LayerUse) -> LayerResult:
    """Resolve ``flatten``: all axes but the batch become one."""
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, ...] with at least two axes", "give the input a batch axis")
    return LayerResult(output=(use.shape[0], multiply(use.shape[1:])), dtype=use.dtype)


def reshape(use: LayerUse) -> LayerResult:
    """Resolve ``reshape``: the axes after the batch become ``shape``, one of which may be -1."""
    if not use.shape:
        raise use.wrong_input("[batch, ...]", "give the input a batch axis")
    shape = fill_reshape(use.shape[1:], use.options.integers("shape"), use.place)
    options = {"shape": tuple(-1 if isinstance(size, str) else size for size in shape)}
    return LayerResult(output=(use.shape[0], *shape), dtype=use.dtype, options=options)


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
        help = "keep the shape inside (a 3x3 convolution does with `padding: 1`), or remove `residual`"
        raise use.problem(found, "inner layers of `residual` that keep the shape of their input", help)
    return LayerResult(
        output=use.shape,
        dtype=use.dtype,
        parameters=branch.parameters,
        buffers=branch.buffers,
        traits=branch.traits,
        layers=branch.layers,
    )


NORMALIZED = ("linear", "conv1d", "conv2d", "conv_transpose2d")
"""Layers whose weight `spectral_norm` divides."""


def spectral_norm(use: LayerUse) -> LayerResult:
    """Resolve ``spectral_norm``: the layer inside, and an estimate ``u`` of its weight's first left singular vector.

    The weight counts as a matrix of one row per output, which for ``conv_transpose2d`` is its second axis.
    """
    place, kinds = (*use.place, "spectral_norm"), [layer.kind for layer in use.layer.layers]
    if len(kinds) != 1 or kinds[0] not in NORMALIZED:
        found = f"`spectral_norm` of {', '.join(kinds)}"
        raise use.problem(found, f"one layer, of {', '.join(NORMALIZED)}", "give every layer its own `spectral_norm`")
    inner = _chain(use.layer.layers, use.shape, use.dtype, place, f"{use.path}.")
    rows = inner.parameters[0].shape[kinds[0] == "conv_transpose2d"]
    return LayerResult(
        output=inner.output,
        dtype=inner.dtype,
        parameters=inner.parameters,
        buffers=(use.tensor("u", (rows,), STANDARD_NORMAL),),
        traits=LayerTraits(buffers=True),
        layers=inner.layers,
    )


RULES: Mapping[str, Callable[[LayerUse], LayerResult]] = {
    "linear": linear,
    "conv1d": sequence_layers.conv1d,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "batch_norm": batch_norm,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "spectral_norm": spectral_norm,
    "positional": sequence_layers.positional,
    "multi_head_attention": sequence_layers.attention,
    "lstm": sequence_layers.recurrent,
    "gru": sequence_layers.recurrent,
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
"""The rule of every layer; a key of :data:`graphspec.declare.layers.LAYERS` each."""


class LayerCall(Struct, frozen=True, kw_only=True):
    """A layer in one call of its model: the shapes that it meets, its tensors by name, and what is inside it."""

    kind: str
    options: Mapping[str, Plain]
    input: Shape
    output: Shape
    parameters: tuple[TensorDecl, ...]
    """Those of layers inside it included."""
    layers: tuple[LayerCall, ...]


def trace_layers(layers: tuple[Layer, ...], inputs: Shape, dtype: str | None = "float32") -> tuple[LayerCall, ...]:
    """Return what every layer of a model meets in a call, given the shape and dtype of the model's input.

    Raises :class:`ShapeProblem` as :func:`resolve_layers` does.
    """
    return tuple(
        LayerCall(
            kind=use.layer.kind,
            options=result.options,
            input=use.shape,
            output=result.output,
            parameters=result.parameters,
            layers=trace_layers(use.layer.layers, use.shape, use.dtype),
        )
        for use, result in _follow(layers, inputs, dtype, (), "")
    )


def _follow(
    layers: tuple[Layer, ...], inputs: Shape, dtype: str | None, place: Place, prefix: str
) -> Iterator[tuple[LayerUse, LayerResult]]:
    """Yield layers that follow each other, each with what its rule finds."""
    shape = inputs
    for index, layer in enumerate(layers):
        path, where = f"{prefix}{index}", (*place, index)
        options = Options(values=layer.options, place=where, defaults=find_defaults(LAYERS[layer.kind]))
        use = LayerUse(layer=layer, options=options, place=where, path=path, shape=shape, dtype=dtype)
        result = RULES[layer.kind](use)
        yield use, result
        shape, dtype = result.output, result.dtype


def _chain(layers: tuple[Layer, ...], inputs: Shape, dtype: str | None, place: Place, prefix: str) -> ResolvedLayers:
    """Resolve layers that follow each other; ``prefix`` comes before their index in parameter names."""
    declarations, results = list[LayerDecl](), [LayerResult(output=inputs, dtype=dtype)]
    for use, result in _follow(layers, inputs, dtype, place, prefix):
        results.append(result)
        declarations.append(LayerDecl(kind=use.layer.kind, path=use.path, options=result.options, layers=result.layers))
    return ResolvedLayers(
        layers=tuple(declarations),
        output=results[-1].output,
        dtype=results[-1].dtype,
        parameters=tuple(tensor for result in results for tensor in result.parameters),
        buffers=tuple(tensor for result in results for tensor in result.buffers),
        traits=reduce(LayerTraits.__or__, (result.traits for result in results)),
    )


__all__ = ["LayerCall", "LayerTraits", "ResolvedLayers", "ShapeProblem", "resolve_layers", "trace_layers"]
