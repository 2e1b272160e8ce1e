"""Convolutions over [batch, channels, height, width]."""

from __future__ import annotations

from compiler.layers.initial import fan_in_uniform
from compiler.layers.resolved import LayerResult
from compiler.layers.use import LayerUse
from compiler.operands import Dimension
from compiler.program import TensorDecl
from compiler.shapes.tensor_type import format_shape
from compiler.shapes.window import transposed_size, window_count


def conv2d(use: LayerUse) -> LayerResult:
    """Resolve ``conv2d``; weight [out, in/groups, height, width]."""
    batch, _, height, width = use.require_image()
    channels, out, groups = use.require_size(1, "channels"), use.options.integer("out"), use.options.integer("groups")
    _check_groups(use, channels, out, groups)
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
    _check_output_padding(use, extra, stride)
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


def _check_groups(use: LayerUse, channels: int, out: int, groups: int) -> None:
    """Refuse groups of unequal size."""
    for count, what in ((channels, "channels in"), (out, "channels out")):
        if count % groups:
            raise use.problem(f"{count} {what}, `groups: {groups}`", "a number of channels divisible by `groups`")


def _check_output_padding(use: LayerUse, extra: tuple[int, int], stride: tuple[int, int]) -> None:
    """Refuse output padding that no input size would explain."""
    if any(e >= s for e, s in zip(extra, stride, strict=True)):
        found = f"`output_padding: {list(extra)}` with `stride: {list(stride)}`"
        raise use.problem(found, "`output_padding` less than `stride`", "lower `output_padding`")
