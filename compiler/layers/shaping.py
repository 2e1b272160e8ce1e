"""Layers that only arrange elements anew: flatten, reshape, identity."""

from __future__ import annotations

from compiler.layers.resolved import LayerResult
from compiler.layers.use import LayerUse
from compiler.shapes.dimension import multiply
from compiler.shapes.reshaping import fill_reshape


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
