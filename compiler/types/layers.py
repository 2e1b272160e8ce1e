"""Resolve the layers of a model against the shape of its input."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from compiler.ir.program import Initializer, LayerDecl, TensorDecl
from compiler.ir.value import Dimension, Plain, Shape
from compiler.types.arrangement import fill_reshape, transposed_size, window_count
from compiler.types.call import Options
from compiler.types.dimension import Place, ShapeProblem, format_shape, is_surely_unequal, multiply, scale
from compiler.types.dtype import is_not_floating
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.options import find_defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTraits:
    """What the schedule must know: written buffers, random draws, samples of a batch that influence each other."""

    buffers: bool = False
    rng: bool = False
    batch_coupled: bool = False

    def __or__(self, other: LayerTraits) -> LayerTraits:
        """Return the traits of two layers together."""
        return LayerTraits(
            buffers=self.buffers or other.buffers,
            rng=self.rng or other.rng,
            batch_coupled=self.batch_coupled or other.batch_coupled,
        )


PURE = LayerTraits()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """What the rule of one layer finds: its result, its options with every size, its tensors by their full names."""

    output: Shape
    dtype: str | None
    options: Mapping[str, Plain] = field(default_factory=dict[str, Plain])
    parameters: tuple[TensorDecl, ...] = ()
    buffers: tuple[TensorDecl, ...] = ()
    traits: LayerTraits = PURE
    layers: tuple[LayerDecl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLayers:
    """The layers of a model in order, the type of its result, and all its parameters and buffers in layer order."""

    layers: tuple[LayerDecl, ...]
    output: Shape
    dtype: str | None
    parameters: tuple[TensorDecl, ...]
    buffers: tuple[TensorDecl, ...]
    traits: LayerTraits


AXES_OF_IMAGES = "[batch, channels, height, width]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerUse:
    """A layer, where it is (``place`` in the spec, ``path`` in parameter names), and its input."""

    layer: Layer
    options: Options
    place: Place
    path: str
    shape: Shape
    dtype: str | None

    def problem(self, found: str, expected: str, help: str = "") -> ShapeProblem:
        """Return the error about this layer."""
        return ShapeProblem(self.place, found, expected, help)

    def wrong_input(self, axes: str, help: str) -> ShapeProblem:
        """Return the error that says which axes the input should have."""
        return self.problem(f"an input of shape {format_shape(self.shape)}", f"{axes} for `{self.layer.kind}`", help)

    def require_floating(self) -> None:
        """Refuse integers and booleans."""
        if is_not_floating(self.dtype):
            help = "declare the input with dtype float32, or begin with an `embedding` if these are indices"
            raise self.problem(
                f"an input of dtype {self.dtype}", f"a floating-point dtype for `{self.layer.kind}`", help
            )

    def require_image(self) -> tuple[Dimension, Dimension, Dimension, Dimension]:
        """Return batch, channels, height and width of a floating image."""
        self.require_floating()
        match self.shape:
            case (batch, channels, height, width):
                return batch, channels, height, width
            case _:
                help = "give the input four axes, for example with `{reshape: [channels, height, width]}` before it"
                raise self.wrong_input(AXES_OF_IMAGES, help)

    def require_size(self, axis: int, what: str) -> int:
        """Return the size of an axis that decides the size of a parameter."""
        size = self.shape[axis]
        if isinstance(size, int):
            return size
        found = f"`{size}`, a size that is not known before the step runs, in the input {format_shape(self.shape)}"
        help = "give the input of the model a number for this axis; its parameters need it"
        raise self.problem(found, f"a known number of {what} for `{self.layer.kind}`", help)

    def tensor(self, name: str, shape: tuple[int, ...], initializer: Initializer, dtype: str = "float32") -> TensorDecl:
        """Return a parameter or buffer of this layer under its full name."""
        return TensorDecl(name=f"{self.path}.{name}", shape=shape, initializer=initializer, dtype=dtype)

    def same(
        self,
        options: Mapping[str, Plain] | None = None,
        parameters: tuple[TensorDecl, ...] = (),
        buffers: tuple[TensorDecl, ...] = (),
        traits: LayerTraits = PURE,
    ) -> LayerResult:
        """Return the result of a layer that keeps shape and dtype."""
        return LayerResult(
            output=self.shape,
            dtype=self.dtype,
            options=options or {},
            parameters=parameters,
            buffers=buffers,
            traits=traits,
        )


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


ZEROS = Initializer(kind="zeros")
ONES = Initializer(kind="ones")
STANDARD_NORMAL = Initializer(kind="normal", bound=1.0)


def fan_in_uniform(fan_in: int) -> Initializer:
    """Return uniform within 1/sqrt(fan_in).

    For biases PyTorch writes it so; for weights it writes kaiming_uniform with a = sqrt(5), whose bound is
    sqrt(3) * sqrt(2 / (1 + a^2)) / sqrt(fan_in), the same number (He et al. 2015, arXiv:1502.01852).
    """
    return Initializer(kind="uniform", bound=1.0 / math.sqrt(fan_in))


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
        parameters=_tensors(use, (out, channels // groups, *kernel), channels // groups, out),
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
        parameters=_tensors(use, (channels, out, *kernel), out, out),
    )


def require_room(use: LayerUse, spatial: list[Dimension]) -> list[Dimension]:
    """Return height and width of the result; refuse what leaves no pixel."""
    if any(isinstance(size, int) and size < 1 for size in spatial):
        found = f"a result of height and width {format_shape(tuple(spatial))} from {format_shape(use.shape)}"
        help = "use a smaller kernel, a smaller stride or more padding, or fewer layers that shrink the image"
        raise use.problem(found, f"at least one pixel after `{use.layer.kind}`", help)
    return spatial


def _tensors(use: LayerUse, shape: tuple[int, ...], planes: int, out: int) -> tuple[TensorDecl, ...]:
    """Return weight and bias, drawn within the bound of ``planes`` kernels of inputs."""
    initializer = fan_in_uniform(planes * shape[2] * shape[3])
    weight = use.tensor("weight", shape, initializer)
    return (weight, use.tensor("bias", (out,), initializer)) if use.options.flag("bias") else (weight,)


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


def batch_norm(use: LayerUse) -> LayerResult:
    """Resolve ``batch_norm`` over axis 1 of [batch, features], [batch, channels, length] or images."""
    use.require_floating()
    if len(use.shape) not in (2, 3, 4):
        raise use.wrong_input("[batch, channels, ...] with two to four axes", "use `flatten` or `reshape` before it")
    features, affine = use.require_size(1, "channels"), use.options.flag("affine")
    options = {"eps": use.options.number("eps"), "momentum": use.options.number("momentum"), "affine": affine}
    statistics = (
        use.tensor("running_mean", (features,), ZEROS),
        use.tensor("running_var", (features,), ONES),
        use.tensor("num_batches_tracked", (), ZEROS, dtype="int64"),
    )
    return use.same(
        options={"num_features": features, **options, "rank": len(use.shape)},
        parameters=_scale_and_offset(use, features) if affine else (),
        buffers=statistics,
        traits=LayerTraits(buffers=True, batch_coupled=True),
    )


def layer_norm(use: LayerUse) -> LayerResult:
    """Resolve ``layer_norm`` over the last axis."""
    use.require_floating()
    if len(use.shape) < 2:
        raise use.wrong_input("[batch, ..., features]", "give the input a batch axis")
    features = use.require_size(-1, "features")
    options = {"normalized_shape": features, "eps": use.options.number("eps")}
    return use.same(options=options, parameters=_scale_and_offset(use, features))


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
    return use.same(options=options, parameters=_scale_and_offset(use, channels))


def _scale_and_offset(use: LayerUse, size: int) -> tuple[TensorDecl, ...]:
    """Return weight (ones) and bias (zeros)."""
    return use.tensor("weight", (size,), ONES), use.tensor("bias", (size,), ZEROS)


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
"""The rule of every layer; a key of :data:`graphspec.declare.layers.LAYERS` each."""


def _chain(layers: tuple[Layer, ...], inputs: Shape, dtype: str | None, place: Place, prefix: str) -> ResolvedLayers:
    """Resolve layers that follow each other; ``prefix`` comes before their index in parameter names."""
    declarations, results = list[LayerDecl](), [LayerResult(output=inputs, dtype=dtype)]
    for index, layer in enumerate(layers):
        path, where, before = f"{prefix}{index}", (*place, index), results[-1]
        options = Options(values=layer.options, place=where, defaults=find_defaults(LAYERS[layer.kind]))
        use = LayerUse(layer=layer, options=options, place=where, path=path, shape=before.output, dtype=before.dtype)
        result = RULES[layer.kind](use)
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


__all__ = ["LayerTraits", "ResolvedLayers", "ShapeProblem", "resolve_layers"]
