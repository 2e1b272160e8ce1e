"""Layers that change the resolution of images: pooling and upsampling."""

from __future__ import annotations

from compiler.layers.convolution import require_room
from compiler.layers.resolved import LayerResult
from compiler.layers.use import LayerUse
from compiler.shapes.dimension import scale
from compiler.shapes.window import window_count


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
