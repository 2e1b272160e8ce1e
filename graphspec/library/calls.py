"""Functions of values.

`python -m tests.graphspec.functions` writes this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from graphspec.python.values import Fields, Number, Operand, Value, apply, apply_several, count_sections


def add(a: Operand, b: Operand, *more: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `add`: a + b."""
    return apply("add", "call", [a, b, *more], {}, fields)


def sub(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `sub`: a - b."""
    return apply("sub", "call", [a, b], {}, fields)


def mul(a: Operand, b: Operand, *more: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `mul`: a * b."""
    return apply("mul", "call", [a, b, *more], {}, fields)


def div(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `div`: a / b."""
    return apply("div", "call", [a, b], {}, fields)


def neg(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `neg`: -x."""
    return apply("neg", "call", [x], {}, fields)


def pow(x: Operand, exponent: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `pow`: x to the power exponent."""
    return apply("pow", "call", [x, exponent], {}, fields)


def minimum(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `minimum`: the lesser of a and b."""
    return apply("minimum", "call", [a, b], {}, fields)


def maximum(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `maximum`: the greater of a and b."""
    return apply("maximum", "call", [a, b], {}, fields)


def less(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `less`: whether a < b."""
    return apply("less", "call", [a, b], {}, fields)


def less_equal(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `less_equal`: whether a <= b."""
    return apply("less_equal", "call", [a, b], {}, fields)


def greater(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `greater`: whether a > b."""
    return apply("greater", "call", [a, b], {}, fields)


def greater_equal(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `greater_equal`: whether a >= b."""
    return apply("greater_equal", "call", [a, b], {}, fields)


def equal(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `equal`: whether a equals b."""
    return apply("equal", "call", [a, b], {}, fields)


def not_equal(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `not_equal`: whether a differs from b."""
    return apply("not_equal", "call", [a, b], {}, fields)


def logical_and(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `logical_and`: whether both of two masks hold."""
    return apply("logical_and", "call", [a, b], {}, fields)


def logical_or(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `logical_or`: whether one of two masks holds, or both."""
    return apply("logical_or", "call", [a, b], {}, fields)


def logical_not(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `logical_not`: whether a mask does not hold."""
    return apply("logical_not", "call", [x], {}, fields)


def matmul(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `matmul`: matrix product a @ b."""
    return apply("matmul", "call", [a, b], {}, fields)


def outer(a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `outer`: all products of an element of the vector a and one of the vector b."""
    return apply("outer", "call", [a, b], {}, fields)


def einsum(x: Operand, *more: Operand, equation: str, **fields: Unpack[Fields]) -> Value:
    """Apply `einsum`: the sum of products over the axes that the result lacks.

    equation: letters of the axes, as in `bi,ij->bj`
    """
    return apply("einsum", "call", [x, *more], {"equation": equation}, fields)


def mean(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `mean`: mean over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("mean", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def sum(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `sum`: sum over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("sum", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def max(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `max`: greatest over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("max", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def min(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `min`: least over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("min", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def sqrt(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `sqrt`: square root."""
    return apply("sqrt", "call", [x], {}, fields)


def square(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `square`: x * x."""
    return apply("square", "call", [x], {}, fields)


def exp(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `exp`: e to the power x."""
    return apply("exp", "call", [x], {}, fields)


def log(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `log`: natural logarithm."""
    return apply("log", "call", [x], {}, fields)


def abs(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `abs`: absolute value."""
    return apply("abs", "call", [x], {}, fields)


def sign(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `sign`: -1, 0 or 1."""
    return apply("sign", "call", [x], {}, fields)


def clip(x: Operand, *, min: Number | None = None, max: Number | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `clip`: x clipped to min and max.

    min: the smallest value (default: no limit)
    max: the largest value (default: no limit)
    """
    return apply("clip", "call", [x], {"min": min, "max": max}, fields)


def norm(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `norm`: Euclidean norm over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("norm", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def normalize(x: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `normalize`: x divided by its Euclidean norm.

    axis: the axis to work along (default -1)
    """
    return apply("normalize", "call", [x], {"axis": axis}, fields)


def softmax(x: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `softmax`: exp(x) divided by its sum.

    axis: the axis to work along (default -1)
    """
    return apply("softmax", "call", [x], {"axis": axis}, fields)


def log_softmax(x: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `log_softmax`: the logarithm of the softmax.

    axis: the axis to work along (default -1)
    """
    return apply("log_softmax", "call", [x], {"axis": axis}, fields)


def logsumexp(
    x: Operand, *, axis: int | Sequence[int] | None = None, keepdims: bool | None = None, **fields: Unpack[Fields]
) -> Value:
    """Apply `logsumexp`: log of the sum of exp(x) over axes.

    axis: the axis or axes to reduce (default: all)
    keepdims: keep axes of size 1 (default False)
    """
    return apply("logsumexp", "call", [x], {"axis": axis, "keepdims": keepdims}, fields)


def cumsum(x: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `cumsum`: the sum of all elements up to each along an axis.

    axis: the axis to work along (default -1)
    """
    return apply("cumsum", "call", [x], {"axis": axis}, fields)


def sort(
    x: Operand, *, axis: int | None = None, descending: bool | None = None, **fields: Unpack[Fields]
) -> tuple[Value, ...]:
    """Apply `sort`: the elements in rising order along an axis, and the indices that they had.

    axis: the axis to work along (default -1)
    descending: whether the greatest comes first (default False)
    """
    return apply_several("sort", [x], {"axis": axis, "descending": descending}, fields, 2)


def topk(
    x: Operand, *, k: int, axis: int | None = None, largest: bool | None = None, **fields: Unpack[Fields]
) -> tuple[Value, ...]:
    """Apply `topk`: the k greatest elements along an axis, in order, and their indices.

    k: how many elements
    axis: the axis to work along (default -1)
    largest: whether the greatest are taken, or the least (default True)
    """
    return apply_several("topk", [x], {"k": k, "axis": axis, "largest": largest}, fields, 2)


def sigmoid(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `sigmoid`: 1 / (1 + exp(-x))."""
    return apply("sigmoid", "call", [x], {}, fields)


def softplus(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `softplus`: log(1 + exp(x)), without overflow."""
    return apply("softplus", "call", [x], {}, fields)


def tanh(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `tanh`: hyperbolic tangent."""
    return apply("tanh", "call", [x], {}, fields)


def relu(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `relu`: max(0, x)."""
    return apply("relu", "call", [x], {}, fields)


def concat(x: Operand, *more: Operand, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `concat`: join along an axis.

    axis: the axis to work along (default 1)
    """
    return apply("concat", "call", [x, *more], {"axis": axis}, fields)


def stack(x: Operand, *more: Operand, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `stack`: join along a new axis.

    axis: the axis to work along (default 0)
    """
    return apply("stack", "call", [x, *more], {"axis": axis}, fields)


def split(
    x: Operand, *, sections: int | Sequence[int], axis: int | None = None, **fields: Unpack[Fields]
) -> tuple[Value, ...]:
    """Apply `split`: cut into several values along an axis.

    sections: a number of equal parts, or their sizes
    axis: the axis to work along (default 1)
    """
    return apply_several("split", [x], {"sections": sections, "axis": axis}, fields, count_sections(sections))


def split_rows(x: Operand, *, count: int, **fields: Unpack[Fields]) -> Value:
    """Apply `split_rows`: cut into near-equal parts along the first axis, the larger ones first.

    count: how many parts
    """
    return apply("split_rows", "call", [x], {"count": count}, fields)


def gather(x: Operand, indices: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `gather`: elements at the indices along an axis.

    axis: the axis to work along (default 1)
    """
    return apply("gather", "call", [x, indices], {"axis": axis}, fields)


def reshape(x: Operand, *, shape: int | Sequence[int | str], **fields: Unpack[Fields]) -> Value:
    """Apply `reshape`: the same elements in another shape.

    shape: all sizes, the batch included; one may be -1
    """
    return apply("reshape", "call", [x], {"shape": shape}, fields)


def expand(x: Operand, *, shape: int | Sequence[int | str], **fields: Unpack[Fields]) -> Value:
    """Apply `expand`: axes of size 1 repeated.

    shape: all sizes, the batch included; -1 keeps a size
    """
    return apply("expand", "call", [x], {"shape": shape}, fields)


def permute(x: Operand, *, dims: int | Sequence[int], **fields: Unpack[Fields]) -> Value:
    """Apply `permute`: axes in another order.

    dims: for each new axis, the old one
    """
    return apply("permute", "call", [x], {"dims": dims}, fields)


def roll(x: Operand, *, shifts: int, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `roll`: elements moved along an axis, the last of them to the start.

    shifts: by how many places
    axis: the axis to work along (default -1)
    """
    return apply("roll", "call", [x], {"shifts": shifts, "axis": axis}, fields)


def pad(
    x: Operand,
    *,
    pad: int | Sequence[int],
    method: Literal["constant", "reflect", "replicate"] | None = None,
    value: Number | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `pad`: elements added at both ends of the last axes.

    pad: how many before and after along the last axis, then along the one before it, and so on
    method: whether they are a number, a mirror image without the edge, or the edge (default constant)
    value: the number that is added (default 0)
    """
    return apply("pad", "call", [x], {"pad": pad, "method": method, "value": value}, fields)


def interpolate(
    x: Operand,
    *,
    size: int | Sequence[int] | None = None,
    factor: int | None = None,
    method: Literal["nearest", "bilinear"] | None = None,
    **fields: Unpack[Fields],
) -> Value:
    """Apply `interpolate`: images of another height and width.

    size: the new height and width
    factor: factor for height and width
    method: how new pixels are computed (default nearest)
    """
    return apply("interpolate", "call", [x], {"size": size, "factor": factor, "method": method}, fields)


def one_hot(x: Operand, *, classes: int, **fields: Unpack[Fields]) -> Value:
    """Apply `one_hot`: 1 at the class, 0 elsewhere, along a new last axis.

    classes: how many classes
    """
    return apply("one_hot", "call", [x], {"classes": classes}, fields)


def argmax(x: Operand, *, axis: int | None = None, **fields: Unpack[Fields]) -> Value:
    """Apply `argmax`: index of the largest element.

    axis: the axis to work along (default 1)
    """
    return apply("argmax", "call", [x], {"axis": axis}, fields)


def where(condition: Operand, a: Operand, b: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `where`: a where the condition holds, else b."""
    return apply("where", "call", [condition, a, b], {}, fields)


def lerp(a: Operand, b: Operand, weight: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `lerp`: a + weight * (b - a)."""
    return apply("lerp", "call", [a, b, weight], {}, fields)


def stop(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `stop`: x, as a constant for every gradient."""
    return apply("stop", "call", [x], {}, fields)


def all_gather(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `all_gather`: the rows of the whole batch, of which each process has some."""
    return apply("all_gather", "call", [x], {}, fields)


def all_mean(x: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `all_mean`: mean over the rows of the whole batch, of which each process has some."""
    return apply("all_mean", "call", [x], {}, fields)


def either(x: Operand, *more: Operand, **fields: Unpack[Fields]) -> Value:
    """Apply `either`: the one of several values that there is in a step."""
    return apply("either", "call", [x, *more], {}, fields)
