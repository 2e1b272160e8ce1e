"""Misfits: in what a value surely differs from the state it is to become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.operands import Dimension, Shape
from compiler.shapes.dtype import agree
from compiler.shapes.tensor_type import TensorType, format_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """What does not fit, what was found and what was expected, and the remedy."""

    what: str
    found: str
    expected: str
    help: str


def find_misfits(state: TensorType, value: TensorType) -> Iterator[Misfit]:
    """Yield in what a value cannot become a state; what is not known may fit, and is looked at when the step runs."""
    if state.shape is not None and value.shape is not None:
        found, expected = format_shape(value.shape), format_shape(state.shape)
        if any(isinstance(size, str) for size in value.shape) and _surely_differs(value.shape, state.shape):
            help = "a state outlives its batch: take a mean over the rows, or a fixed number of them with `slice`"
            yield Misfit(what="shape", found=found, expected=expected, help=help)
        elif _surely_differs(value.shape, state.shape):
            help = f"declare the state with `shape: {found}`, or give the value its shape"
            yield Misfit(what="shape", found=found, expected=expected, help=help)
    if state.dtype is not None and value.dtype is not None and not agree(value.dtype, state.dtype):
        help = f"declare the state with `dtype: {value.dtype}`"
        yield Misfit(what="dtype", found=value.dtype, expected=state.dtype, help=help)


def _surely_differs(found: Shape, fixed: Shape) -> bool:
    """Return whether a shape cannot be a fixed one whatever the batch is."""
    if len(found) != len(fixed):
        return True
    return any(size != other for size, other in zip(found, fixed, strict=True) if not _is_open(size))


def _is_open(size: Dimension) -> bool:
    """Return whether a size is an expression that may come to the same for every batch: ``max(batch, 8)``."""
    return isinstance(size, str) and any(mark in size for mark in ("(", "[", "//"))
